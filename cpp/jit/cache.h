// A bounded, thread-safe map from key to shared value with one generation per key. Whoever asks
// first generates, outside the lock; others who ask meanwhile wait for that result. A generator
// that throws leaves no trace: every waiter gets the exception, the next one to ask tries again.
// The least recently used values go first when a bound is exceeded, but never one in use.
#pragma once

#include <cstdint>
#include <exception>
#include <future>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "jit/code.h"

namespace dlprim {

struct CacheInfo {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
    std::int64_t hits = 0;
    std::int64_t misses = 0;
    std::int64_t evictions = 0;
    std::int64_t max_entries = 0;
    std::int64_t max_bytes = 0;
};

template <typename Key, typename Value, typename Hash = std::hash<Key>>
class Cache {
public:
    using Pointer = std::shared_ptr<const Value>;

    Cache(std::int64_t max_entries, std::int64_t max_bytes) {
        info_.max_entries = max_entries;
        info_.max_bytes = max_bytes;
    }

    // `make` returns a Pointer; Value::bytes() is what it counts against the bound.
    template <typename Make>
    Pointer get_or_create(const Key& key, Make&& make) {
        std::unique_lock lock(mutex_);
        const auto found = index_.find(key);
        if (found != index_.end()) {
            ++info_.hits;
            order_.splice(order_.begin(), order_, found->second);
            const std::shared_future<Pointer> value = found->second->value;
            lock.unlock();
            return value.get();
        }
        ++info_.misses;
        std::promise<Pointer> promise;
        Order entry;
        entry.push_front({key, promise.get_future().share(), 0, false});
        index_.emplace(key, entry.begin());
        order_.splice(order_.begin(), entry);
        lock.unlock();
        return fill(key, promise, std::forward<Make>(make));
    }

    CacheInfo info() const {
        const std::lock_guard lock(mutex_);
        CacheInfo info = info_;
        info.entries = static_cast<std::int64_t>(order_.size());
        return info;
    }

    // Forgets every finished value and the counters; values in use live on with their users.
    void clear() {
        const std::lock_guard lock(mutex_);
        for (auto entry = order_.begin(); entry != order_.end();) {
            entry = entry->filled ? erase(entry) : std::next(entry);
        }
        info_.hits = info_.misses = info_.evictions = 0;
    }

    // Forgets finished values of code from before so much was mapped, but none in use.
    void forget_code(std::int64_t mapped_before) {
        const std::lock_guard lock(mutex_);
        for (auto entry = order_.begin(); entry != order_.end();) {
            const bool is_old =
                !entry->in_use() && entry->value.get()->mapped_before() < mapped_before;
            entry = is_old ? erase(entry) : std::next(entry);
            if (is_old) ++info_.evictions;
        }
    }

    // Around fork(): no other thread is inside while the process is copied, and the child forgets
    // what the threads it lost were generating.
    void before_fork() { mutex_.lock(); }
    void after_fork_in_parent() { mutex_.unlock(); }
    void after_fork_in_child() {
        for (auto entry = order_.begin(); entry != order_.end();) {
            entry = entry->filled ? std::next(entry) : erase(entry);
        }
        mutex_.unlock();
    }

private:
    struct Entry {
        Key key;
        std::shared_future<Pointer> value;
        std::int64_t bytes;
        bool filled;  // its maker is done with it; until then it must stay

        bool in_use() const { return !filled || value.get().use_count() > 1; }
    };
    using Order = std::list<Entry>;

    template <typename Make>
    Pointer fill(const Key& key, std::promise<Pointer>& promise, Make&& make) {
        try {
            const Pointer value = std::forward<Make>(make)();
            promise.set_value(value);
            const std::lock_guard lock(mutex_);
            const auto entry = index_.find(key)->second;
            entry->bytes = value->bytes();
            entry->filled = true;
            info_.bytes += entry->bytes;
            evict();
            return value;
        } catch (...) {
            {
                const std::lock_guard lock(mutex_);
                erase(index_.find(key)->second);
            }
            promise.set_exception(std::current_exception());
            throw;
        }
    }

    void evict() {
        auto entry = order_.end();
        while (over_bound() && entry != order_.begin()) {
            --entry;
            if (entry->in_use()) continue;
            entry = erase(entry);
            ++info_.evictions;
        }
    }

    bool over_bound() const {
        return static_cast<std::int64_t>(order_.size()) > info_.max_entries ||
               info_.bytes > info_.max_bytes;
    }

    typename Order::iterator erase(typename Order::iterator entry) {
        info_.bytes -= entry->bytes;
        index_.erase(entry->key);
        return order_.erase(entry);
    }

    mutable std::mutex mutex_;
    Order order_;  // most recently used first
    std::unordered_map<Key, typename Order::iterator, Hash> index_;
    CacheInfo info_;
};

// Calls these around every fork() from now on.
void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)());

// For objects of which a process has many, around a look at what they keep: nothing is made, ended
// or called meanwhile that takes a lock, because several objects share one. No other thread has it
// while the process is forked.
std::mutex& short_lock(const void* holder);

struct CacheBounds {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
};

// The one of the process, which survives fork(). Never destroyed: what it holds may still be called
// while the process exits.
template <class Shared, auto... kArguments>
Shared& one_of_process() {
    static Shared& instance = *[] {
        watch_forks([] { one_of_process<Shared, kArguments...>().before_fork(); },
                    [] { one_of_process<Shared, kArguments...>().after_fork_in_parent(); },
                    [] { one_of_process<Shared, kArguments...>().after_fork_in_child(); });
        return new Shared(kArguments...);
    }();
    return instance;
}

// A cache of values that hold code; Value::mapped_before() is that of code.h.
template <class Shared, CacheBounds kBounds>
Shared& process_cache() {
    static Shared& instance = [&]() -> Shared& {
        watch_mapped_code([](std::int64_t mapped_before) {
            one_of_process<Shared, kBounds.entries, kBounds.bytes>().forget_code(mapped_before);
        });
        return one_of_process<Shared, kBounds.entries, kBounds.bytes>();
    }();
    return instance;
}

}  // namespace dlprim
