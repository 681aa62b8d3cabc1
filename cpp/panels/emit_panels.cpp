#include "panels/emit_panels.h"

#include <cstddef>
#include <memory>

#include "jit/element_assembler.h"

namespace dlprim {
namespace {

// Group by group, and of a group `width` vectors at a time, products are added up in registers;
// what a group adds to the result is scaled and added to sums in memory, which costs no arithmetic
// and leaves registers to the rows. Weights are read once, and hardware alone does not run far
// enough ahead of them: every line is fetched into the L2 cache, where more can be under way than
// into L1, and from there into L1 shortly before.
class PanelEmitter : ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = std::size_t{128} << 10;

    PanelEmitter(const PanelPlan& plan, void* buffer)
        : ElementAssembler(plan.isa, buffer, kMostCodeBytes),
          plan_(plan),
          spec_(plan.spec),
          format_(plan.spec.format),
          record_(plan.record),
          method_(plan.record.method),
          piece_(record_.is_integer() ? kPieceWeights : format_.group),
          pieces_(format_.group / piece_) {}

    std::vector<std::uint8_t> emit() {
        mov(weights_, ptr[args_ + offsetof(PanelArgs, weights)]);
        mov(records_, ptr[args_ + offsetof(PanelArgs, records)]);
        mov(sums_, ptr[args_ + offsetof(PanelArgs, sums)]);
        mov(groups_, ptr[args_ + offsetof(PanelArgs, groups)]);
        if (uses_mask()) load_constant(kMask, mask());
        clear_sums();
        Xbyak::Label next, end;
        test(groups_, groups_);
        jz(end, T_NEAR);
        L(next);
        group();
        add(weights_, static_cast<int>(format_.group_bytes()));
        add(records_, static_cast<int>(spec_.rows * record_.bytes()));
        dec(groups_);
        jnz(next, T_NEAR);
        L(end);
        results();
        vzeroupper();
        ret();
        emit_constants();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    static constexpr int kBytesAheadInL2 = 6144;
    static constexpr int kBytesAheadInL1 = 1024;
    static constexpr int kLine = 64;
    static constexpr int kRowOfSums = kPanelColumns * static_cast<int>(kFloat);
    // What steps hold; in results everything from kValue on is free.
    static constexpr int kMask = 0;
    static constexpr int kLow = 1;
    static constexpr int kHigh = 2;
    static constexpr int kNumbers = 3;
    static constexpr int kProduct = 4;
    static constexpr int kScale = 1;
    static constexpr int kZero = 2;
    static constexpr int kValue = 4;
    static constexpr int kBehindActivation = 12;

    bool uses_mask() const {
        if (format_.bits == 16) return method_ == PanelMethod::floats;
        return format_.bits == 4 || method_ == PanelMethod::words;
    }
    std::uint32_t mask() const {
        if (format_.bits == 16) return 0xffff0000;
        return format_.bits == 4 ? 0x0f0f0f0f : 0x00ff00ff;
    }

    // The registers of one row and vector; the last one is the total.
    int part(int row, int v, int index) const {
        return kFirstSum + (row * plan_.width + v) * plan_.per_sum + index;
    }
    int last_part(int row, int v) const { return part(row, v, plan_.per_sum - 1); }

    Xbyak::RegExp of_row(int row, std::int64_t at) const {
        return records_ + static_cast<int>(row * record_.bytes() + at);
    }
    Xbyak::RegExp sum_at(int row, int vector_index) const {
        return sums_ + (row * kRowOfSums + vector_index * vector_bytes());
    }

    void clear_sums() {
        zero(kValue);
        for (int row = 0; row < spec_.rows; ++row) {
            for (int v = 0; v < plan_.vectors; ++v) store(sum_at(row, v), kValue, false, 0);
        }
    }

    // ---------------------------------------------------------------- a group

    void group() {
        for (int first = 0; first < plan_.vectors; first += plan_.width) {
            start_sums();
            if (pieces_ == 1) {
                piece(first);
            } else {
                all_pieces(first);
            }
            for (int v = 0; v < plan_.width; ++v) end_vector(first + v, v);
        }
    }

    void all_pieces(int first) {
        const int weight_bytes = static_cast<int>(format_.scales_at()) / pieces_;
        const int number_bytes = piece_ * static_cast<int>(record_.number_bytes());
        Xbyak::Label next;
        mov(left_, pieces_);
        L(next);
        piece(first);
        add(weights_, weight_bytes);
        add(records_, number_bytes);
        dec(left_);
        jnz(next, T_NEAR);
        sub(weights_, weight_bytes * pieces_);
        sub(records_, number_bytes * pieces_);
    }

    // What the zero of the weights adds is where sums begin, unless columns have their own.
    void start_sums() {
        for (int row = 0; row < spec_.rows; ++row) {
            for (int v = 0; v < plan_.width; ++v) {
                for (int i = 0; i < plan_.per_sum; ++i) zero(part(row, v, i));
                const bool is_sum = method_ != PanelMethod::pairs || plan_.has_total;
                if (record_.is_integer() && is_sum && !format_.zero_points) {
                    vpbroadcastd(vector(last_part(row, v)), ptr[of_row(row, record_.zero_at())]);
                }
            }
        }
    }

    void piece(int first) {
        const int words = piece_ / format_.weights_per_word();
        for (int step = 0; step < words; ++step) {
            for (int v = 0; v < plan_.width; ++v) {
                load_weights(step, first + v);
                for (int row = 0; row < spec_.rows; ++row) multiply(step, row, v);
            }
        }
        if (method_ != PanelMethod::pairs) return;
        for (int row = 0; row < spec_.rows; ++row) {
            for (int v = 0; v < plan_.width; ++v) end_pairs(row, v);
        }
    }

    void fetch(int at) {
        if (at % kLine != 0) return;
        prefetcht1(ptr[weights_ + (at + kBytesAheadInL2)]);
        prefetcht0(ptr[weights_ + (at + kBytesAheadInL1)]);
    }

    // A vector of words, as what is multiplied: in kLow, or half of it in kHigh.
    void load_weights(int step, int vector_index) {
        const int at =
            step * kPanelColumns * static_cast<int>(kWord) + vector_index * vector_bytes();
        const Vector low = vector(kLow), high = vector(kHigh), all = vector(kMask);
        fetch(at);
        avx512() ? vmovdqu32(low, ptr[weights_ + at]) : vmovdqu(low, ptr[weights_ + at]);
        if (!uses_mask()) return;
        if (format_.bits == 16) {
            bitwise_and(high, low, all);
            vpslld(low, low, 16);
            return;
        }
        format_.bits == 4 ? vpsrlw(high, low, 4) : vpsrlw(high, low, 8);
        bitwise_and(low, low, all);
        if (format_.bits == 4) bitwise_and(high, high, all);
    }

    void bitwise_and(const Vector& to, const Vector& a, const Vector& b) {
        avx512() ? vpandd(to, a, b) : vpand(to, a, b);
    }

    void multiply(int step, int row, int v) {
        const int halves = uses_mask() ? 2 : 1;
        // Of numbers that one half is multiplied with.
        const int bytes =
            method_ == PanelMethod::floats ? static_cast<int>(kFloat) : static_cast<int>(kWord);
        for (int i = 0; i < record_.parts(); ++i) {
            for (int half = 0; half < halves; ++half) {
                const auto numbers =
                    of_row(row, record_.part_at(i) + (step * halves + half) * bytes);
                multiply_half(part(row, v, i), half == 0 ? kLow : kHigh, numbers);
            }
        }
    }

    void multiply_half(int sum, int weights, const Xbyak::RegExp& numbers) {
        const Vector s = vector(sum), w = vector(weights), x = vector(kNumbers);
        const Vector product = vector(kProduct);
        const bool is_wordwise = method_ == PanelMethod::dots || !record_.is_integer();
        const bool embeds = avx512() && is_wordwise;
        if (!embeds) vpbroadcastd(x, dword[numbers]);
        switch (method_) {
            case PanelMethod::dots:
                embeds ? vpdpbusd(s, w, ptr_b[numbers], Xbyak::EvexEncoding)
                       : vpdpbusd(s, w, x, Xbyak::VexEncoding);
                break;
            case PanelMethod::floats:
                embeds ? vfmadd231ps(s, w, ptr_b[numbers]) : vfmadd231ps(s, w, x);
                break;
            case PanelMethod::halves: vdpbf16ps(s, w, ptr_b[numbers]); break;
            case PanelMethod::pairs:
                vpmaddubsw(product, w, x);
                vpaddw(s, s, product);
                break;
            case PanelMethod::words:
                vpmaddwd(product, w, x);
                vpaddd(s, s, product);
                break;
        }
    }

    // Sums of 16 bits, of which there are two in a word, into one of 32; h counts 128 times.
    void end_pairs(int row, int v) {
        const bool two = record_.parts() == 2;
        const int low = part(row, v, two ? 1 : 0);
        if (two) {
            load_constant(kNumbers, 0x00800080);
            const Vector h = vector(part(row, v, 0));
            vpmaddwd(h, h, vector(kNumbers));
        }
        load_constant(kNumbers, 0x00010001);
        vpmaddwd(vector(low), vector(low), vector(kNumbers));
        if (two) add_words(low, part(row, v, 0));
        if (plan_.has_total) {
            add_words(last_part(row, v), low);
            for (int i = 0; i + 1 < plan_.per_sum; ++i) zero(part(row, v, i));
        } else if (!format_.zero_points) {
            vpbroadcastd(vector(kNumbers), ptr[of_row(row, record_.zero_at())]);
            add_words(low, kNumbers);
        }
    }

    // ---------------------------------------------------------------- ends

    void end_vector(int vector_index, int v) {
        if (record_.is_integer()) load_scales(vector_index);
        for (int row = 0; row < spec_.rows; ++row) {
            const int sum = last_part(row, v);
            const Vector s = vector(sum);
            if (!record_.is_integer()) {
                vaddps(s, s, ptr[sum_at(row, vector_index)]);
            } else {
                if (method_ == PanelMethod::dots && record_.parts() == 2) {
                    shift_words_left(part(row, v, 0), 7);
                    add_words(sum, part(row, v, 0));
                }
                if (format_.zero_points) add_zeros(row, sum);
                words_to_floats(sum);
                vbroadcastss(vector(kNumbers), dword[of_row(row, record_.scale_at())]);
                multiply_floats(kNumbers, kScale);
                vfmadd213ps(s, vector(kNumbers), ptr[sum_at(row, vector_index)]);
            }
            store(sum_at(row, vector_index), sum, false, 0);
        }
    }

    void load_scales(int vector_index) {
        const int scales = static_cast<int>(format_.scales_at()) +
                           vector_index * plan_.lanes * static_cast<int>(size_of(format_.scales));
        fetch(scales);
        load_elements(kScale, weights_ + scales, format_.scales, false);
        if (!format_.zero_points) return;
        const int zeros = static_cast<int>(format_.zero_points_at()) + vector_index * plan_.lanes;
        fetch(zeros);
        vpmovzxbd(vector(kZero), ptr[weights_ + zeros]);
    }

    void add_zeros(int row, int sum) {
        vpbroadcastd(vector(kNumbers), ptr[of_row(row, record_.zero_at())]);
        multiply_words(kNumbers, kZero);
        add_words(sum, kNumbers);
    }

    void results() {
        const int element = static_cast<int>(size_of(spec_.src));
        const int tail = spec_.columns % plan_.lanes;
        mov(dst_, ptr[args_ + offsetof(PanelArgs, dst)]);
        if (spec_.bias) mov(bias_, ptr[args_ + offsetof(PanelArgs, bias)]);
        mov(dst_row_, ptr[args_ + offsetof(PanelArgs, dst_row)]);
        if (tail > 0) set_tail(tail);
        for (int row = 0; row < spec_.rows; ++row) {
            for (int at = 0; at < spec_.columns; at += plan_.lanes) {
                const bool masked = at + plan_.lanes > spec_.columns;
                load(kValue, sum_at(row, at / plan_.lanes), false);
                if (spec_.bias) {
                    load(kValue + 1, bias_ + at * static_cast<int>(kFloat), masked);
                    add_floats(kValue, kValue + 1);
                }
                activate(spec_.activation, kValue, kValue + 1, 1, spec_.src);
                store_elements(dst_ + at * element, kValue, spec_.src, masked, kBehindActivation);
            }
            add(dst_, dst_row_);
        }
    }

    const PanelPlan& plan_;
    const PanelSpec& spec_;
    const PanelFormat& format_;
    const RowRecord& record_;
    PanelMethod method_;
    int piece_;  // weights of a column whose products are added without an end
    int pieces_;

    Reg args_ = rdi;
    Reg weights_ = rsi;
    Reg records_ = rdx;
    Reg sums_ = rcx;
    Reg groups_ = r8;
    Reg left_ = r9;
    Reg dst_ = r8;
    Reg dst_row_ = r9;
    Reg bias_ = r10;
};

}  // namespace

std::vector<std::uint8_t> emit_panel(const PanelPlan& plan) {
    const auto buffer = std::make_unique<std::uint8_t[]>(PanelEmitter::kMostCodeBytes);
    return PanelEmitter(plan, buffer.get()).emit();
}

}  // namespace dlprim
