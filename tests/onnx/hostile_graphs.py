"""Graphs that no exporter writes: what a reader must refuse in a sentence, and what to survive.

`REFUSED` and `SURVIVED` give the text of each by name; every graph takes `float[2,4] x`. The second
kind is odd, but has a meaning: then its result has to come, or a sentence.
"""

from __future__ import annotations

import onnx.helper
import onnx.parser

_IMAGE = "c = Reshape(x, image)\n"
_LEAST = -(2**63)


def _fold(body: str) -> str:
    """Integer arithmetic on constants that becomes a shape."""
    return f"""int64[1] least = {{{_LEAST}}}, int64[1] minus = {{-1}}, int64[1] zero = {{0}},
        int64[1] one = {{1}}, int64[1] huge = {{{2**40}}}> {{
        {body}
        y = Reshape(x, k)
    }}"""


def _conv(attributes: str) -> str:
    return f"""int64[4] image = {{1,2,2,2}}, float[2,2,1,1] w = {{1,2,3,4}}> {{
        {_IMAGE} y = Conv<{attributes}>(c, w)
    }}"""


def _size(body: str, constants: str = "") -> str:
    return f"""int64[1] one = {{1}}, int64[2] huge = {{{2**33},{2**33}}}{constants}> {{ {body} }}"""


def _plain(body: str, constants: str = "") -> str:
    return f"float zero = {{0}}{constants}> {{ {body} }}"


_LONG = "".join(f"v{i + 1} = Relu(v{i})\n" for i in range(10_000))
_DOUBLED = "".join(f"v{i + 1} = Concat<axis=0>(v{i}, v{i})\n" for i in range(45))


def _image(body: str, constants: str = "") -> str:
    """Of one channel and 2 x 4 pixels."""
    return f"""int64[4] image = {{1,1,2,4}}{constants}> {{
        {_IMAGE} {body}
    }}"""


_REGION = ", float[1,4] r = {{0,0,{0},{0}}}, int64[1] i = {{0}}"
_TAP = ", float[1,1,1,1] w = {1}"
_WIDE = "kernel_shape=[1,1000000000], strides=[1,1000000000]"
# Files of 80 to 230 bytes that would take gigabytes.
_LARGE_IMAGES = {
    "regions_of_many_samples": ("y = RoiAlign<sampling_ratio=1000000>(c, r, i)", _REGION.format(1)),
    "regions_that_are_large": ("y = RoiAlign(c, r, i)", _REGION.format("1e5")),
    "regions_that_are_larger": ("y = RoiAlign(c, r, i)", _REGION.format("1e30")),
    "regions_of_many_bins": (
        "y = RoiAlign<output_height=99999, output_width=99999>(c, r, i)",
        _REGION.format(1),
    ),
    "pool_of_wide_padding": (
        "y = MaxPool<kernel_shape=[1,1], pads=[0,0,0,2000000000], strides=[1,1000000000]>(c)",
    ),
    "pool_of_wide_windows": (f"y = AveragePool<{_WIDE}, pads=[0,1000000000,0,1000000000]>(c)",),
    "powers_of_wide_windows": (f"y = LpPool<{_WIDE}, pads=[0,1000000000,0,1000000000]>(c)",),
    "pool_with_places": (
        "y, p = MaxPool<kernel_shape=[2000,2000], pads=[2000,2000,2000,2000]>(c)",
    ),
    "pool_back_to_many": (f"p = Cast<to=7>(c)\n y = MaxUnpool<{_WIDE}>(c, p)",),
    "channels_of_a_wide_window": ("y = LRN<size=2000000000>(c)",),
    "channels_of_the_widest_window": (f"y = LRN<size={2**63 - 1}>(c)",),
    "transposed_far_apart": ("y = ConvTranspose<strides=[1,1000000000]>(c, w)", _TAP),
    "padded_far_away": ("y = Conv<strides=[1,1000000000], pads=[0,2000000000,0,0]>(c, w)", _TAP),
    "dilated_far_away": (
        "y = Conv<dilations=[1,1000000000], pads=[0,1000000000,0,0]>(c, w)",
        ", float[1,1,1,2] w = {1,1}",
    ),
}
_WAVE = ", int64[3] s = {1,8,1}, int64 n = {400000000}"
_LARGE = {
    "resized_far_up": (
        'y = Resize<mode="linear", antialias=1>(x, "", s)',
        ", float[2] s = {4000000, 0.25}",
    ),
    "resized_far_down": (
        'a = Expand(b, n)\n y = Resize<mode="cubic", antialias=1>(a, "", s)',
        ", float[2,1] b = {1,2}, int64[2] n = {2,10000000}, float[2] s = {1, 0.000002}",
    ),
    "resized_both_ways": ('y = Resize<mode="nearest">(x, "", s)', ", float[2] s = {10000,10000}"),
    "signal_of_many": ("c = Reshape(x, s)\n y = DFT<axis=1>(c, n)", _WAVE),
    "signal_of_one_side": ("c = Reshape(x, s)\n y = DFT<axis=1, onesided=1>(c, n)", _WAVE),
    "pad_of_many": ("y = Pad(x, p)", ", int64[4] p = {0,0,0,2000000000}"),
    "pad_by_reflection": ('y = Pad<mode="reflect">(x, p)', ", int64[4] p = {0,0,0,200000000}"),
    "expand_to_many": ("y = Expand(x, n)", ", int64[3] n = {100000000,2,4}"),
    "expand_and_sum": (
        "a = Expand(x, n)\n b = Exp(a)\n y = ReduceSum(b)",
        ", int64[3] n = {100000000,2,4}",
    ),
    "tile_of_many": ("y = Tile(x, n)", ", int64[2] n = {100000,100000}"),
    "gather_of_many": ("i = Expand(one, n)\n y = Gather(x, i)", ", int64[1] n = {1000000000}"),
    "constant_of_many": ("k = ConstantOfShape(n)\n y = Add(k, k)", ", int64[2] n = {50000,50000}"),
}
REFUSED = {
    # ------------------------------------------------ names and order
    "cycle": _plain("a = Add(x, b)\n b = Relu(a)\n y = Relu(b)"),
    "loop_of_one": _plain("a = Add(x, a)\n y = Relu(a)"),
    "name_defined_twice": _plain("a = Relu(x)\n a = Neg(x)\n y = Relu(a)"),
    "name_of_an_input_defined": _plain("x = Relu(zero)\n y = Relu(x)"),
    "name_of_a_constant_defined": _plain("zero = Relu(x)\n y = Relu(zero)"),
    "name_not_defined": _plain("y = Add(x, nowhere)"),
    "result_not_defined": _plain("z = Relu(x)"),
    # ------------------------------------------------ operators
    "operator_unknown": _plain("y = Frobnicate(x)"),
    "domain_unknown": _plain("y = com.example.Relu(x)"),
    "domain_without_version": _plain("y = com.microsoft.QGemm(x, x, x)"),
    "too_few_inputs": _plain("y = Add(x)"),
    "too_many_inputs": _plain("y = Relu(x, x, x)"),
    "input_left_out": _plain('y = Add(x, "")'),
    "too_many_results": _plain("y, z, w = Relu(x)"),
    "attribute_missing": _plain("y = Concat(x, x)"),
    "attribute_unknown": _plain("y = Relu<slope=2.0>(x)"),
    "attribute_of_wrong_type": _conv('strides="abc"'),
    "attribute_of_nowhere": _plain("y = Softmax<axis: int = @axis>(x)"),
    "loop_of_another_body": """int64 n = {3}, bool t = {1}> {
        y = Loop(n, t, x)<body = b(int64 i, bool c) => (bool d, float[2,4] w) {
            d = Identity(c)
            w = Relu(x) }> }""",
    # ------------------------------------------------ integers while folding
    "divide_by_zero": _fold("k = Div(one, zero)"),
    "modulo_zero": _fold("k = Mod(one, zero)"),
    "range_of_step_zero": """int64 z = {0}, int64 n = {8}> {
        r = Range(z, n, z)
        y = Reshape(x, r) }""",
    "slice_of_step_zero": _fold("y0 = Slice(x, zero, one, zero, zero)\n k = Shape(y0)"),
    # ------------------------------------------------ indices and axes
    "gather_out_of_range": _fold("g = Gather<axis=0>(huge, one)\n k = Mul(g, zero)"),
    "gather_elements_out_of_range": _fold("g = GatherElements(huge, one)\n k = Mul(g, zero)"),
    "softmax_of_no_axis": _plain("y = Softmax<axis=7>(x)"),
    "concat_of_no_axis": _plain("y = Concat<axis=-9>(x, x)"),
    "transpose_twice_the_same": _plain("y = Transpose<perm=[0,0]>(x)"),
    "transpose_of_other_rank": _plain("y = Transpose<perm=[0,2,1]>(x)"),
    "reshape_to_other_size": _fold("k = Concat<axis=0>(one, one)"),
    "reshape_of_two_unknowns": _fold("k = Concat<axis=0>(minus, minus)"),
    "reshape_to_less_than_nothing": _fold("k = Mul(minus, huge)"),
    "squeeze_of_four": _fold("s = Squeeze(x, one)\n k = Shape(s)"),
    "split_that_does_not_sum": """int64[2] parts = {1, 2}> {
        a, b = Split<axis=1>(x, parts)
        y = Relu(b) }""",
    "split_below_zero": """int64[2] parts = {-1, 5}> {
        a, b = Split<axis=1>(x, parts)
        y = Relu(b) }""",
    # ------------------------------------------------ geometry
    "group_zero": _conv("group=0"),
    "group_that_does_not_divide": _conv("group=3"),
    "stride_zero": _conv("strides=[0,0]"),
    "stride_below_zero": _conv("strides=[-1,1]"),
    "dilation_zero": _conv("dilations=[0,1]"),
    "kernel_of_other_shape": _conv("kernel_shape=[3,3]"),
    "kernel_beyond_the_image": _conv("dilations=[1,1], pads=[-3,0,0,0]"),
    "too_few_pads": _conv("pads=[1,1]"),
    "pads_without_end": _conv(f"pads=[{2**40},0,0,0]"),
    "pool_of_nothing": """int64[4] image = {1,2,2,2}> {
        c = Reshape(x, image)
        y = MaxPool<kernel_shape=[0,0]>(c) }""",
    "pool_without_end": f"""int64[4] image = {{1,2,2,2}}> {{
        c = Reshape(x, image)
        y = AveragePool<kernel_shape=[{2**40},{2**40}]>(c) }}""",
    "product_of_other_depth": _plain("y = MatMul(x, x)"),
    "sum_of_other_shapes": _plain("y = Add(x, w)", ", float[3] w = {1,2,3}"),
    "norm_of_other_size": _plain(
        "y = LayerNormalization<axis=-1>(x, w)", ", float[3] w = {1,2,3}"
    ),
    "lstm_of_other_size": _plain(
        "s = Unsqueeze(x, i)\n y, h = LSTM<hidden_size=3>(s, w, w)",
        ", int64[1] i = {0}, float[1,4,1] w = {1,2,3,4}",
    ),
    "types_mixed": _plain("y = Add(x, i)", ", int64[1] i = {1}"),
    "type_of_no_meaning": _plain("y = Cast<to=77>(x)"),
    # ------------------------------------------------ numbers
    "scale_that_is_no_number": _plain("q = QuantizeLinear(x, s)\n y = DequantizeLinear(q, s)",
                                      ", float s = {nan}"),
    "scale_without_end": _plain("q = QuantizeLinear(x, s)\n y = DequantizeLinear(q, s)",
                                ", float s = {inf}"),
    # ------------------------------------------------ sizes
    "constant_without_end": _size("k = ConstantOfShape(huge)\n y = Add(x, k)"),
    "expand_without_end": _size("e = Expand(one, huge)\n f = Cast<to=1>(e)\n y = Add(x, f)"),
    "tile_without_end": _size("y = Tile(x, huge)"),
    "range_without_end": _size(
        "r = Range(a, b, d)\n f = Cast<to=1>(r)\n y = Add(x, f)",
        f", int64 a = {{0}}, int64 b = {{{2**60}}}, int64 d = {{1}}",
    ),
    "pad_without_end": _size("y = Pad(x, p)", f", int64[4] p = {{0,0,0,{2**45}}}"),
    "resize_without_end": _size('y = Resize<mode="nearest">(x, "", "", huge)'),
    "resize_to_nothing": _size('y = Resize<mode="nearest">(x, "", s)', ", float[2] s = {nan,-1}"),
    "one_hot_without_end": _size(
        "i = Cast<to=7>(x)\n y = OneHot(i, d, v)",
        f", int64 d = {{{2**50}}}, float[2] v = {{0,1}}",
    ),
    **{name: _image(*it) for name, it in _LARGE_IMAGES.items()},
    **{name: _size(*it) for name, it in _LARGE.items()},
    "doubled_without_end": _plain("v0 = Relu(x)\n" + _DOUBLED + "y = Relu(v45)"),
}  # fmt: skip
SURVIVED = {
    "branch_that_is_known": """bool t = {1}> {
        y = If(t)<then_branch = b() => (float[2,4] z) { z = Relu(x) },
                  else_branch = c() => (float[2,4] z) { z = Neg(x) }> }""",
    "least_by_minus_one": _fold("a = Div(least, minus)\n b = Mul(a, zero)\n k = Sub(b, one)"),
    "least_modulo_minus_one": _fold("a = Mod(least, minus)\n k = Sub(a, one)"),
    "unsorted": _plain("y = Relu(b)\n b = Neg(a)\n a = Relu(x)"),
    "ten_thousand_nodes": _plain("v0 = Neg(x)\n" + _LONG + "y = Relu(v10000)"),
    "nothing_used": _plain("a = Relu(x)\n b = Add(x, a)\n y = Neg(x)"),
    "scale_of_zero": _plain(
        "q = QuantizeLinear(x, zero)\n y = DequantizeLinear(q, zero)"
    ),
    "empty_slice": _fold("e = Slice(x, one, one, zero)\n k = Shape(e)"),
}  # fmt: skip


def parsed(body: str, opset: int = 18) -> onnx.ModelProto:
    """A model of one of these texts."""
    start = f'<ir_version: 8, opset_import: ["" : {opset}]> hostile (float[2,4] x) => (float y) <'
    model = onnx.parser.parse_model(start + body)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def nested(depth: int) -> onnx.ModelProto:
    """Branches within branches."""
    leaf = branch = onnx.parser.parse_graph("leaf () => (float z) { z = Relu(x) }")
    for _ in range(depth):
        node = onnx.helper.make_node("If", ["t"], ["z"], then_branch=branch, else_branch=leaf)
        branch = onnx.helper.make_graph([node], "branch", [], list(leaf.output))
    model = parsed(_plain("y = Neg(x)", ", bool t = {1}"))
    model.graph.node[0].CopyFrom(branch.node[0])
    model.graph.node[0].output[0] = "y"
    return model
