#include <cstddef>
#include <memory>

#include "jit/element_assembler.h"
#include "panels/emit_panels.h"

namespace dlprim {
namespace {

// A group goes through twice: for its largest number, then to be rounded. Rounded numbers and their
// sums are whole and small, so that floats hold them exactly.
class RecordEmitter : ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = std::size_t{16} << 10;

    RecordEmitter(const RecordSpec& spec, Isa isa, void* buffer)
        : ElementAssembler(isa, buffer, kMostCodeBytes),
          spec_(spec),
          record_(spec.record),
          lanes_(vector_bytes() / static_cast<int>(kFloat)) {}

    std::vector<std::uint8_t> emit() {
        mov(src_, ptr[args_ + offsetof(RecordArgs, src)]);
        mov(to_, ptr[args_ + offsetof(RecordArgs, records)]);
        mov(groups_, ptr[args_ + offsetof(RecordArgs, groups)]);
        Xbyak::Label next;
        L(next);
        if (record_.is_integer()) {
            find_scale();
            round_all();
        } else {
            copy_numbers();
        }
        add(src_, static_cast<int>(record_.group * size_of(spec_.src)));
        add(to_, ptr[args_ + offsetof(RecordArgs, record_step)]);
        dec(groups_);
        jnz(next, T_NEAR);
        vzeroupper();
        ret();
        emit_constants();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    static constexpr int kNumber = 0;
    static constexpr int kLargest = 1;
    static constexpr int kInverse = 2;
    static constexpr int kSum = 3;
    static constexpr int kHigh = 4;
    static constexpr int kSpare = 5;  // and the next two

    void load_numbers(int index, int at) {
        load_elements(index, src_ + at * static_cast<int>(size_of(spec_.src)), spec_.src, false);
    }

    void copy_numbers() {
        const bool widens = record_.method == PanelMethod::floats;
        const int lanes = widens ? lanes_ : vector_bytes() / 2;
        for (int at = 0; at < record_.group; at += lanes) {
            widens ? load_numbers(kNumber, at) : load(kNumber, src_ + at * 2, false);
            store(to_ + at * static_cast<int>(record_.number_bytes()), kNumber, false, 0);
        }
    }

    // Of what is no number the bits are above those of infinity: it is the largest, and the scale.
    void find_scale() {
        load_constant(kLargest, std::bit_cast<std::uint32_t>(0x1p-100F));
        for (int at = 0; at < record_.group; at += lanes_) {
            load_numbers(kNumber, at);
            and_constant(kNumber, 0x7fffffff);
            vpmaxsd(vector(kLargest), vector(kLargest), vector(kNumber));
        }
        reduce(kLargest, [&](const Vector& a, const Vector& b) { vpmaxsd(a, a, b); });
        const Xbyak::Xmm largest(kLargest), inverse(kInverse), spare(kSpare);
        const auto most = static_cast<float>(record_.most());
        load_constant(kInverse, std::bit_cast<std::uint32_t>(most));
        load_constant(kSpare, std::bit_cast<std::uint32_t>(1 / most));
        vdivss(inverse, inverse, largest);
        vbroadcastss(vector(kInverse), inverse);
        vmulss(spare, spare, largest);
        vmovss(dword[to_ + static_cast<int>(record_.scale_at())], spare);
    }

    void round_all() {
        zero(kSum);
        for (int at = 0; at < record_.group; at += lanes_) {
            load_numbers(kNumber, at);
            multiply_floats(kNumber, kInverse);
            round_to_even(kNumber);
            add_floats(kSum, kNumber);
            record_.method == PanelMethod::words ? store_words(at) : store_parts(at);
        }
        reduce(kSum, [&](const Vector& a, const Vector& b) { vaddps(a, a, b); });
        vcvtss2si(eax, Xbyak::Xmm(kSum));
        imul(eax, eax, -int{spec_.zero});
        mov(dword[to_ + static_cast<int>(record_.zero_at())], eax);
    }

    void store_parts(int at) {
        if (record_.parts() == 2) {
            vmulps(vector(kHigh), vector(kNumber), number(1.0F / 128));
            round_to_even(kHigh);
            vfnmadd231ps(vector(kNumber), vector(kHigh), number(128));
            store_elements(to_ + at, kHigh, DType::s8, false, kSpare);
        }
        const int last = static_cast<int>(record_.part_at(record_.parts() - 1));
        store_elements(to_ + (last + at), kNumber, DType::s8, false, kSpare);
    }

    void store_words(int at) {
        const Vector x = vector(kNumber);
        vcvtps2dq(x, x);
        vpshufd(x, x, 0b11'01'10'00);  // as place_in_words() has it
        if (avx512()) return vpmovdw(ptr[to_ + 2 * at], Xbyak::Zmm(kNumber));
        vpackssdw(x, x, x);
        vpermq(Xbyak::Ymm(kNumber), Xbyak::Ymm(kNumber), 0b00001000);
        vmovups(ptr[to_ + 2 * at], Xbyak::Xmm(kNumber));
    }

    // All lanes to one, which is then in every lane of the lowest 128 bits.
    template <class Combine>
    void reduce(int index, const Combine& combine) {
        const Xbyak::Xmm low(index), other(kSpare);
        if (avx512()) {
            vextracti64x4(Xbyak::Ymm(kSpare), Xbyak::Zmm(index), 1);
            combine(Xbyak::Ymm(index), Xbyak::Ymm(kSpare));
        }
        vextracti128(other, Xbyak::Ymm(index), 1);
        combine(low, other);
        vpshufd(other, low, 0b01'00'11'10);
        combine(low, other);
        vpshufd(other, low, 0b10'11'00'01);
        combine(low, other);
    }

    const RecordSpec& spec_;
    const RowRecord& record_;
    int lanes_;

    Reg args_ = rdi;
    Reg src_ = rsi;
    Reg to_ = rdx;
    Reg groups_ = rcx;
};

}  // namespace

std::vector<std::uint8_t> emit_records(const RecordSpec& spec, Isa isa) {
    const auto buffer = std::make_unique<std::uint8_t[]>(RecordEmitter::kMostCodeBytes);
    return RecordEmitter(spec, isa, buffer.get()).emit();
}

}  // namespace dlprim
