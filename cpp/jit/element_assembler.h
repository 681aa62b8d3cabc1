// One vector of C between memory, in whatever type, and registers, where it is float32 (int32 for
// an int32 C). Narrow types make this more than a move: AVX2 cannot mask 16-bit or 8-bit elements,
// and without AVX512_BF16 rounding to bfloat16 is integer arithmetic.
#pragma once

#include <span>

#include "jit/activation_assembler.h"
#include "jit/dtype.h"

namespace dlprim {

// Registers of what turns words of several vectors into bytes at once: what no word is below and
// the zero point that is added then, of 16 bits; the order that packing, within 128 bits, takes
// away.
struct BytePacking {
    int lowest = 0;
    int zero_point = 0;
    int order = 0;
};

class ElementAssembler : public ActivationAssembler {
public:
    using ActivationAssembler::ActivationAssembler;

protected:
    // A masked load touches the elements of the tail alone and leaves zero in the other lanes.
    void load_elements(int index, const Xbyak::RegExp& from, DType dtype, bool masked);

    // Rounds to nearest even; int8 saturates, with NaN as the lowest value. Overwrites the register
    // and the two from `scratch` on.
    void store_elements(const Xbyak::RegExp& to, int index, DType dtype, bool masked, int scratch);

    // The words of up to four registers as bytes, one behind the other, in the first; with the zero
    // point none is above what the type holds. Overwrites the registers.
    void pack_bytes(std::span<const int> words, DType dtype, const BytePacking& with);

    // From `zero_point` in memory and the register of the lowest bound, which holds floats.
    void start_packing(const Xbyak::RegExp& zero_point, const BytePacking& with);

    // The bytes that `vectors` of the packed registers were, behind those `before` them; or that a
    // partial one was. Overwrites the last of the registers.
    void store_packed(const Xbyak::RegExp& to, std::span<const int> words, int before, int vectors);
    void store_packed_tail(const Xbyak::RegExp& to, std::span<const int> words, int before);

    // Of values that bfloat16 holds: all bits as they are. Overwrites the register.
    void store_exactly(const Xbyak::RegExp& to, int index, bool masked);

    // Leaves the bfloat16 in the low half of each word. A NaN keeps its upper bits and becomes
    // quiet. Overwrites the two registers from `scratch` on.
    void round_to_bf16(int index, int scratch);

    // As a float16 would be when it is loaded again; and what lies in the lower half as these.
    void round_to_f16(int index);
    void widen_halves(int index);

    // `count` elements in at most 16 bytes, one of the first 16 registers, which stores overwrite;
    // zeros are behind what is loaded.
    void store_low(const Xbyak::RegExp& to, int index, int element, int count);
    void load_low(int index, const Xbyak::RegExp& from, int element, int count);

    // Values of `from` to 8 bits as store_elements() does, with one step less where narrowing
    // saturates. Overwrites the register `index` alone.
    void store_as_bytes(const Xbyak::RegExp& to, int index, int from, DType dtype, bool masked);

private:
    void round_to_bytes(int to, int from, DType dtype, bool bounds_above);
    void narrow_and_store(const Xbyak::RegExp& to, int index, DType dtype, bool masked);
    void pack_low(int index, DType dtype);
    void store_part(const Xbyak::Address& to, std::span<const int> words, int at, int size);
    void take_part(int to, int index, int at);
};

}  // namespace dlprim
