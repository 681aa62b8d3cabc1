// The AMX tiles of a thread over a run of kernel calls. To configure the tiles takes as long as
// ten products of tiles, so a kernel that is told what they already are leaves them if it can.
// While they are configured the operating system saves 8 KiB more of a thread that it interrupts.
#pragma once

#include <cstdint>

namespace dlprim {

// Between two calls that are given state(), no other kernel runs on the thread.
class KeptTiles {
public:
    KeptTiles() = default;
    KeptTiles(const KeptTiles&) = delete;
    KeptTiles& operator=(const KeptTiles&) = delete;
    ~KeptTiles() {
        if (configured_ != 0) release();
    }

    // For BrgemmArgs::tiles.
    std::uint64_t* state() { return &configured_; }

private:
    static void release() { asm volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0"); }  // TILERELEASE

    std::uint64_t configured_ = 0;
};

}  // namespace dlprim
