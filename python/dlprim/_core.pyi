"""The compiled core. Private: use the functions of the package instead."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class Kernel:
    def __init__(self, request: dict[str, int | bool | str]) -> None: ...
    def __call__(
        self,
        a: Any,
        b: Any,
        c: npt.NDArray[Any],
        *,
        batch: int | None = None,
        stride_a: int | None = None,
        stride_b: int | None = None,
        offsets_a: npt.NDArray[np.int64] | None = None,
        offsets_b: npt.NDArray[np.int64] | None = None,
        bias: Any = None,
        scale: Any = None,
        residual: Any = None,
        relu_mask: npt.NDArray[np.uint8] | None = None,
        zero_point_a: int | None = None,
        zero_point_b: int | None = None,
    ) -> None: ...
    def measure(
        self, a: Any, b: Any, c: npt.NDArray[Any], *, repeats: int, **others: Any
    ) -> float: ...
    @property
    def isa(self) -> str: ...
    @property
    def tile(self) -> tuple[int, int]: ...
    @property
    def name(self) -> str: ...
    @property
    def plan(self) -> str: ...
    @property
    def code(self) -> bytes: ...

class _Ordered:
    def set_schedule(self, which: str, text: str) -> None: ...
    def candidates(self, which: str, count: int) -> list[str]: ...
    def loops(self, which: str) -> dict[str, int]: ...
    def describe(self) -> str: ...
    @property
    def schedules(self) -> dict[str, str]: ...

class _Scheduled(_Ordered):
    @property
    def flops(self) -> float: ...
    @property
    def scratch_bytes(self) -> dict[str, int]: ...

class _Formed:
    def pack(
        self, form: str, name: str, plain: npt.NDArray[Any], out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]: ...
    def unpack(self, form: str, packed: Any, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]: ...
    def new(self, form: str, like: Any) -> npt.NDArray[Any]: ...
    @property
    def shapes(self) -> dict[str, Any]: ...
    @property
    def plain_shapes(self) -> dict[str, Any]: ...

class _Product(_Scheduled, _Formed):
    def backward_data(
        self, diff_dst: Any, weights: Any, out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]: ...
    def backward_weights(
        self, src: Any, diff_dst: Any, out: npt.NDArray[Any] | None, narrow: bool
    ) -> npt.NDArray[Any]: ...
    def backward_activation(
        self,
        diff_dst: Any,
        saved: Any,
        relu_mask: Any,
        out: npt.NDArray[Any] | None,
        diff_bias: npt.NDArray[np.float32] | None,
    ) -> npt.NDArray[Any]: ...

class _Convolution:
    def __init__(
        self,
        algorithm: str,
        high_accuracy: bool,
        shape: Sequence[int],
        dtype: str,
        dst_dtype: str,
        layout: str,
        activation: str,
        bias: bool,
    ) -> None: ...
    @property
    def algorithms(self) -> dict[str, str]: ...

class RunEvents:
    def __init__(self) -> None: ...
    def wait(self, array: int, seconds: float) -> bool: ...
    def end(self) -> None: ...

class PausedRun:
    def __init__(self) -> None: ...
    def resume(
        self,
        arrays: Sequence[npt.NDArray[Any]],
        out: Sequence[npt.NDArray[Any] | None] | None = None,
        events: RunEvents | None = None,
    ) -> list[npt.NDArray[Any]]: ...

class Network:
    def __init__(self) -> None: ...
    def input(self, shape: Sequence[int], dtype: npt.DTypeLike, name: str = "") -> int: ...
    def state(self, shape: Sequence[int], dtype: npt.DTypeLike, name: str = "") -> int: ...
    def next_of(self, state: int) -> int: ...
    def constant(self, array: npt.NDArray[Any]) -> int: ...
    def temporary(self, shape: Sequence[int], dtype: npt.DTypeLike) -> int: ...
    def view(
        self,
        of: int,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        strides: Sequence[int] | None = None,
        offset: int = 0,
    ) -> int: ...
    def conv2d(
        self,
        conv: Conv2d,
        label: str = "",
        *,
        quantized: tuple[int, float, float, float, int] | None = None,
        src: int,
        weights: int,
        bias: int = -1,
        residual: int = -1,
        int_bias: int = -1,
        scale: int = -1,
        dst: int,
        relu_mask: int = -1,
    ) -> None: ...
    def conv2d_backward_data(
        self, conv: Conv2d, label: str = "", *, diff_dst: int, weights: int, diff_src: int
    ) -> None: ...
    def conv2d_backward_weights(
        self, conv: Conv2d, label: str = "", *, src: int, diff_dst: int, diff_weights: int
    ) -> None: ...
    def batch_norm(
        self,
        norm: BatchNorm,
        label: str = "",
        *,
        src: int,
        weights: int = -1,
        bias: int = -1,
        residual: int = -1,
        dst: int,
        relu_mask: int = -1,
        mean: int,
        variance: int,
        inverse_std: int,
    ) -> None: ...
    def batch_norm_backward(
        self,
        norm: BatchNorm,
        label: str = "",
        *,
        diff_dst: int,
        diff_addend: int = -1,
        src: int,
        mean: int,
        variance: int,
        weights: int = -1,
        relu_mask: int = -1,
        dst: int = -1,
        inverse_std: int,
        diff_src: int,
        diff_residual: int = -1,
        diff_weights: int,
        diff_bias: int,
    ) -> None: ...
    def relu_backward(
        self,
        of: Activations,
        label: str = "",
        *,
        diff_dst: int,
        dst: int = -1,
        relu_mask: int = -1,
        diff_src: int = -1,
        diff_bias: int = -1,
    ) -> None: ...
    def plain_conv2d(
        self,
        conv: PlainConv2d,
        label: str = "",
        *,
        x: int,
        w: int,
        bias: int = -1,
        residual: int = -1,
        y: int,
    ) -> None: ...
    def plain_conv2d_backward(
        self,
        conv: PlainConv2d,
        label: str = "",
        *,
        dy: int,
        x: int = -1,
        w: int = -1,
        dx: int = -1,
        dw: int = -1,
        db: int = -1,
    ) -> None: ...
    def linear(
        self,
        linear: Linear,
        label: str = "",
        *,
        quantized: tuple[int, float, float, float, int] | None = None,
        src: int,
        weights: int,
        bias: int = -1,
        int_bias: int = -1,
        scale: int = -1,
        dst: int,
    ) -> None: ...
    def panel_linear(
        self,
        layer: PanelLinear,
        activation: str,
        label: str = "",
        *,
        src: int,
        weights: int,
        bias: int = -1,
        dst: int,
    ) -> None: ...
    def formula(
        self,
        formula: Formula,
        parameters: Sequence[int],
        results: Sequence[int],
        label: str = "",
        replaced: Sequence[int] = (),
    ) -> None: ...
    def rows(
        self,
        program: str,
        dtype: str,
        extents: tuple[int, int],
        operands: Sequence[float],
        label: str = "",
    ) -> None: ...
    def rnn(
        self,
        rnn: Rnn,
        label: str = "",
        *,
        src: int,
        h_0: int = -1,
        c_0: int = -1,
        lengths: int = -1,
        peepholes: int = -1,
        packed_w_ih: int,
        packed_w_hh: int,
        packed_bias: int,
        dst: int,
        h_n: int,
        c_n: int = -1,
        gates: int = -1,
        cells: int = -1,
        hidden_n: int = -1,
    ) -> None: ...
    def rnn_backward(
        self,
        rnn: Rnn,
        label: str = "",
        *,
        src: int,
        h_0: int = -1,
        c_0: int = -1,
        lengths: int = -1,
        transposed_w_ih: int,
        transposed_w_hh: int,
        dst: int,
        gates: int,
        cells: int = -1,
        hidden_n: int = -1,
        diff_dst: int = -1,
        diff_h_n: int = -1,
        diff_c_n: int = -1,
        diff_src: int,
        diff_h_0: int,
        diff_c_0: int = -1,
        diff_w_ih: int,
        diff_w_hh: int,
        diff_b_ih: int,
        diff_b_hh: int,
    ) -> None: ...
    def rnn_transpose(
        self,
        rnn: Rnn,
        label: str = "",
        *,
        packed_w_ih: int,
        packed_w_hh: int,
        transposed_w_ih: int,
        transposed_w_hh: int,
    ) -> None: ...
    def rnn_pack(
        self,
        rnn: Rnn,
        label: str = "",
        *,
        w_ih: int,
        w_hh: int,
        b_ih: int = -1,
        b_hh: int = -1,
        packed_w_ih: int,
        packed_w_hh: int,
        packed_bias: int,
    ) -> None: ...
    def attention(
        self,
        label: str,
        settings: tuple[float, float, bool, int],
        *,
        q: int,
        k: int,
        v: int,
        mask: int = -1,
        fill: int = -1,
        dst: int,
    ) -> None: ...
    def attention_backward(
        self,
        label: str,
        settings: tuple[float, float, bool, int],
        *,
        q: int,
        k: int,
        v: int,
        mask: int = -1,
        dy: int,
        dq: int,
        dk: int,
        dv: int,
    ) -> None: ...
    def byte_attention(
        self,
        label: str,
        steps: dict[str, tuple[str, float, int]],
        settings: tuple[float, bool],
        *,
        q: int,
        k: int,
        v: int,
        mask: int = -1,
        dst: int,
    ) -> None: ...
    def pool(
        self, pooling: Pooling, label: str = "", *, src: int, dst: int, taps: int = -1
    ) -> None: ...
    def pool_backward(
        self,
        pooling: Pooling,
        label: str = "",
        *,
        diff_dst: int,
        taps: int = -1,
        diff_src: int,
    ) -> None: ...
    def resample(self, resampling: Resampling, src: int, dst: int, label: str = "") -> None: ...
    def pack(self, of: _Formed, form: str, src: int, dst: int, label: str = "") -> None: ...
    def unpack(self, of: _Formed, form: str, src: int, dst: int, label: str = "") -> None: ...
    def copy(self, src: int, dst: int, label: str = "") -> None: ...
    def map(
        self,
        operations: Sequence[tuple[str, str, Sequence[int], float]],
        operands: Sequence[int],
        dst: int,
        label: str = "",
    ) -> None: ...
    def pieces(
        self,
        piece: Network,
        rest: Network | None,
        inputs: Sequence[int],
        results: Sequence[int],
        label: str = "",
    ) -> None: ...
    def function(
        self,
        function: str,
        numbers: dict[str, float],
        inputs: Sequence[int],
        outputs: Sequence[int],
        label: str = "",
    ) -> None: ...
    def routed(
        self,
        experts: list[list[Network]],
        sizes: Sequence[int],
        values: tuple[int, int, int],
        label: str = "",
    ) -> None: ...
    def repeat(
        self,
        body: Network,
        inputs_and_states: tuple[Sequence[int], Sequence[int]],
        results_and_carried: tuple[Sequence[int], Sequence[int]],
        reverse: bool,
        label: str = "",
    ) -> None: ...
    def gather(
        self,
        table: int,
        indices: int,
        dst: int,
        label: str = "",
        axis: int = 0,
        argument: str = "",
    ) -> None: ...
    def update(
        self,
        rule: str,
        parameters: Sequence[tuple[int, Sequence[int], Sequence[int], int]],
        numbers: tuple[int, int, int],
        label: str = "",
    ) -> None: ...
    def clip(
        self, gradients: Sequence[int], limit: int, norm: int, factor: int, label: str = ""
    ) -> None: ...
    def scatter_add(
        self, src: int, indices: int, dst: int, label: str = "", argument: str = ""
    ) -> None: ...
    def placed_rows(self, values: Sequence[int], label: str = "") -> None: ...
    def indexed(
        self, values: Sequence[int], indexing: tuple[int, int, str], label: str = ""
    ) -> None: ...
    def top(self, values: Sequence[int], axis: int, largest: bool, label: str = "") -> None: ...
    def fold(
        self,
        src: int,
        dst: int,
        function: str,
        how: tuple[bool, bool],
        label: str = "",
    ) -> None: ...
    def call(
        self,
        function: Callable[..., Any],
        inputs: Sequence[int],
        outputs: Sequence[int],
        label: str = "",
    ) -> None: ...
    def finish(self, results: Sequence[int]) -> None: ...
    def run(
        self,
        arrays: Sequence[npt.NDArray[Any]],
        out: Sequence[npt.NDArray[Any] | None] | None = None,
        events: RunEvents | None = None,
    ) -> list[npt.NDArray[Any]]: ...
    def final_after(self, array: int) -> int: ...
    def pause(self, inputs: int, results: int) -> None: ...
    def begin_if_exact(
        self, arrays: tuple[npt.NDArray[Any], ...]
    ) -> tuple[PausedRun, Any] | None: ...
    def run_if_exact(self, arrays: tuple[Any, ...]) -> Any: ...
    def profile(self, arrays: Sequence[npt.NDArray[Any]]) -> list[tuple[str, float, str]]: ...
    def priced(
        self, threads: int
    ) -> tuple[float, float, list[tuple[str, str, float, float, int, int]]]: ...
    def describe(self) -> str: ...
    @property
    def runs_alone(self) -> bool: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def live_bytes(self) -> int: ...

class Conv2d(_Convolution, _Product):
    def forward(
        self,
        src: Any,
        weights: Any,
        bias: Any,
        residual: Any,
        relu_mask: npt.NDArray[np.uint8] | None,
        out: npt.NDArray[Any] | None,
        quantized: tuple[Any, ...] | None,
    ) -> npt.NDArray[Any]: ...
    def pack_weights(
        self, w: npt.NDArray[Any], out: npt.NDArray[Any] | None, form: str
    ) -> npt.NDArray[Any]: ...
    def weights_shape(self, form: str) -> tuple[int, ...]: ...
    def algorithm(self, which: str) -> str: ...

class PlainConv2d(_Convolution, _Ordered):
    def forward(
        self, x: Any, w: Any, bias: Any, residual: Any, y: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]: ...
    def backward(
        self, dy: Any, x: Any, w: Any, y: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float32]]: ...
    def backward_data(self, dy: Any, w: Any, dx: npt.NDArray[Any]) -> None: ...
    def backward_weights(
        self, dy: Any, x: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]: ...
    @property
    def portion_images(self) -> int: ...
    @property
    def result_shape(self) -> tuple[int, ...]: ...

class VolumeConv:
    def __init__(
        self,
        channels: tuple[int, int, int, int],
        axes: Sequence[tuple[int, int, int, int, int, int]],
        dtype: str,
        bias: bool,
    ) -> None: ...
    def is_faster(self, which: str) -> bool: ...
    def forward(self, x: Any, w: Any, bias: Any, y: npt.NDArray[Any]) -> None: ...
    def backward_data(self, dy: Any, w: Any, dx: npt.NDArray[Any]) -> None: ...
    def backward_weights(
        self, dy: Any, x: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]: ...

class KnownCalls:
    def __init__(self, most: int, variable: str) -> None: ...
    def find(self, arrays: tuple[Any, ...], others: tuple[Any, ...]) -> Any: ...
    def keep(
        self,
        arrays: tuple[Any, ...],
        others: tuple[Any, ...],
        found: Any,
        used: tuple[Any, ...],
    ) -> None: ...
    def clear(self) -> None: ...

class PanelLinear:
    def __init__(
        self,
        shape: tuple[int, int],
        bits: int,
        group: int,
        zero_points: bool,
        scales: str,
        x_bits: int,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    def pack(self, w: Any, dtype: str) -> Any: ...
    def pack_given(self, q: Any, scales: Any, zero_points: Any) -> Any: ...
    def unpack(self, packed: Any) -> Any: ...
    def forward(
        self,
        packed: Any,
        x: Any,
        bias: Any,
        activation: str,
        out: npt.NDArray[Any] | None,
        bits: bool,
    ) -> Any: ...

class Linear(_Product):
    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        dst_dtype: str,
        layout: str,
        activation: str,
        bias: bool,
    ) -> None: ...
    def forward(
        self,
        src: Any,
        weights: Any,
        bias: Any,
        quantized: tuple[Any, ...] | None,
        before_activation: npt.NDArray[Any] | None,
        out: npt.NDArray[Any] | None,
    ) -> npt.NDArray[Any]: ...
    def pack_weights(
        self, w: npt.NDArray[Any], out: npt.NDArray[Any] | None, backward: bool
    ) -> npt.NDArray[Any]: ...

class Rnn(_Scheduled):
    def __init__(
        self,
        cell: str,
        extents: Sequence[int],
        dtype: str,
        reverse: bool,
        form: tuple[Sequence[tuple[str, float, float]], float, bool, bool, bool],
    ) -> None: ...
    @property
    def shapes(self) -> dict[str, tuple[int, ...]]: ...
    def forward(self, operands: dict[str, Any], training: bool) -> dict[str, npt.NDArray[Any]]: ...
    def backward(self, operands: dict[str, Any]) -> dict[str, npt.NDArray[Any]]: ...
    def pack_weights(self, operands: dict[str, Any]) -> dict[str, npt.NDArray[Any]]: ...
    def transpose_weights(self, operands: dict[str, Any]) -> dict[str, npt.NDArray[Any]]: ...

class Activations(_Formed):
    def __init__(self, shape: Sequence[int], groups: int, dtype: str, layout: str) -> None: ...

class BatchNorm:
    def __init__(self, activations: Activations, relu: bool, epsilon: float) -> None: ...
    def forward(self, arrays: dict[str, Any]) -> None: ...
    def backward(self, arrays: dict[str, Any], is_given: bool, given_pixels: float) -> None: ...

class Pooling:
    def __init__(self, src: Activations, kind: str, window: Sequence[int]) -> None: ...
    def forward(self, src: Any, out: Any, indices: Any) -> npt.NDArray[Any]: ...
    def backward(self, diff_dst: Any, indices: Any, out: Any) -> npt.NDArray[Any]: ...
    @property
    def dst_shape(self) -> tuple[int, ...]: ...

class Resampling:
    def __init__(
        self,
        src: Activations,
        rows: tuple[Sequence[int], Sequence[int], Sequence[float]],
        columns: tuple[Sequence[int], Sequence[int], Sequence[float]],
    ) -> None: ...
    def forward(self, src: Any, out: Any) -> npt.NDArray[Any]: ...
    @property
    def dst_shape(self) -> tuple[int, ...]: ...

def answered(function: Callable[..., Any], answer: Callable[..., Any]) -> Any: ...
def made_by_rows(
    program: str, as_one_row: bool, out: npt.NDArray[Any] | None, *args: Any
) -> npt.NDArray[Any] | None: ...
def run_rows(
    program: str, dtype: str, rows: int, columns: int, operands: tuple[Any, ...]
) -> None: ...
def linear(
    x: Any, w: Any, bias: Any, activation: str | None, out: npt.NDArray[Any] | None, bits: bool
) -> Any: ...
def linear_backward(dy: Any, x: Any, w: Any, y: Any, activation: str | None, bits: bool) -> Any: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    out: npt.NDArray[Any] | None,
    fill: Any,
    settings: tuple[float | None, float, bool, int, bool, int],
) -> Any: ...
def attention_backward(
    dy: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    settings: tuple[float | None, float, bool, int, bool, int],
) -> Any: ...
def elementwise(operation: str, src: Any, other: Any, out: Any) -> npt.NDArray[Any]: ...
def dropout(
    src: Any, out: Any, seed: int, offset: int, threshold: int, scale: float
) -> npt.NDArray[Any]: ...
def update(
    rule: str,
    parameters: list[tuple[npt.NDArray[Any] | None, ...]],
    settings: Sequence[float],
    steps: Sequence[int],
    scale: float = 1.0,
) -> None: ...
def gradient_norm(gradients: Sequence[npt.NDArray[np.float32]]) -> float: ...
def clipping_factor(norm: float, limit: float) -> float: ...
def gather_rows(
    indices: npt.NDArray[np.int64], weights: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None: ...
def embedding_backward(
    indices: npt.NDArray[np.int64],
    dtype: str,
    diff_dst: npt.NDArray[Any],
    out: npt.NDArray[np.float32],
) -> None: ...
def softmax_cross_entropy(
    logits: npt.NDArray[Any],
    dtype: str,
    targets: npt.NDArray[np.int64],
    ignored: int,
    out: npt.NDArray[Any] | None,
    terms: tuple[Any, ...],
) -> float: ...

class Definition:
    def __init__(self, formula: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> list[str]: ...
    @property
    def types(self) -> list[str]: ...
    @property
    def returns(self) -> list[str]: ...
    @property
    def text(self) -> str: ...
    def gradient(self, parameter: str) -> Definition: ...

def parse_definitions(text: str) -> list[Definition]: ...
def spelling_of(name: str) -> str: ...
def bound_trees(
    definition: Definition, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int]
) -> tuple[tuple[Any, ...], dict[str, list[int]], dict[str, int]]: ...

class Formula:
    def __init__(
        self,
        definition: Definition,
        parameters: Sequence[npt.NDArray[Any]],
        shapes: Mapping[str, Sequence[int]],
        given: Mapping[str, int],
        result_types: Sequence[str],
        choices: Mapping[str, str] = {},
        made_at: int = 0,
        takes_halves: bool = False,
    ) -> None: ...
    def call(self, arrays: tuple[Any, ...], out: Any = None) -> Any: ...
    def call_if_current(self, arrays: tuple[Any, ...], out: Any) -> Any: ...
    def run(
        self, parameters: Sequence[npt.NDArray[Any]], results: Sequence[npt.NDArray[Any]]
    ) -> None: ...
    def results(self) -> list[tuple[str, str, tuple[int, ...], bool]]: ...
    def described(self, all: bool, instruction: str | None) -> str: ...
    def decisions(self, orders: int) -> list[tuple[str, str, list[str], dict[str, int]]]: ...
    @property
    def flops(self) -> float: ...
    @property
    def scratch_bytes(self) -> int: ...

def algorithm_changed() -> None: ...
def algorithm_changes() -> int: ...
def rows_of_piece(
    rows: int, dtype: str, flops: float, weights: float, row_bytes: Sequence[float]
) -> int: ...
def image_pieces(
    images: int, steps: Sequence[tuple[float, float, float, bool]]
) -> tuple[int, int]: ...
def row_program_names() -> list[str]: ...
def isa() -> str: ...
def detected_isa() -> str: ...
def num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def set_threads_of_caller(count: int) -> int: ...
def reason_for_num_threads() -> str: ...
def priced(call: Callable[[], object], threads: int) -> tuple[float, float, int, int]: ...
def fma_peak(dtype: str, isa: str, seconds: float) -> float: ...
def read_bandwidth(isa: str, bytes: int, seconds: float) -> float: ...
def kernel_cache_info() -> dict[str, int]: ...
def kernel_cache_clear() -> None: ...
def pack_b(
    b: npt.NDArray[Any],
    from_dtype: str,
    packed: npt.NDArray[Any],
    to_dtype: str,
    transposed: bool,
) -> None: ...
def round_to_bfloat16(src: npt.NDArray[np.float32], dst: npt.NDArray[Any]) -> None: ...
def widen_to_float32(src: npt.NDArray[Any], dst: npt.NDArray[np.float32]) -> None: ...
def aligned(shape: Sequence[int], dtype: npt.DTypeLike, zeros: bool) -> npt.NDArray[Any]: ...
def contiguous(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None: ...
def bfloat16_dtype() -> np.dtype[Any]: ...
def set_packed_type(type: type[np.ndarray[Any, Any]]) -> None: ...
def nonzero_places(x: npt.NDArray[Any]) -> npt.NDArray[np.int64]: ...
def kept_boxes(
    boxes: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float32],
    most: int,
    threshold: float,
    least: float,
    is_centered: bool,
) -> npt.NDArray[np.int64]: ...

class Loop:
    def __init__(
        self,
        network: Network,
        feeds: Sequence[tuple[str, int]],
        carried: Sequence[int],
        condition: int,
        kept: Sequence[tuple[bool, int]],
    ) -> None: ...

class KnownNetworks:
    def __init__(self, most: int, defaults: Sequence[tuple[int, Any]]) -> None: ...
    def ask(self, places: Sequence[int]) -> None: ...
    def add(self, inputs: Sequence[Any], graph: Any, reads: Sequence[int]) -> None: ...
    def run(self, inputs: Sequence[Any]) -> list[npt.NDArray[Any]] | None: ...
    def ran(self, graph: Any) -> None: ...
    @property
    def latest(self) -> Any: ...

class PartBlock:
    def __init__(self, block: Any, inputs: Sequence[int]) -> None: ...
    def set_plan(
        self,
        pieces: Sequence[dict[str, Any]],
        outputs: Sequence[tuple[int, Any]],
        values: int,
        is_network_and_turn: tuple[bool, int],
    ) -> None: ...
    def forget(self) -> None: ...

class StepBodies:
    def __init__(self) -> None: ...
    def run(self, inputs: Sequence[Any]) -> list[Any]: ...
    def choose(self, condition: Any) -> tuple[Any, ...]: ...
    def repeat(
        self,
        condition: Any,
        states: Sequence[Any],
        rows: Sequence[Any],
        most: int | None,
        max_bytes: int,
    ) -> tuple[tuple[Any, ...], list[Any]]: ...

class PartProgram:
    def __init__(
        self,
        block: PartBlock,
        inputs: Sequence[tuple[str, int, Any, Sequence[int] | None, Any]],
        in_words: bool,
    ) -> None: ...
    def run_exact(self, owner: Any, given: Any) -> list[Any] | None: ...
    def call_exact(self, owner: Any, given: tuple[Any, ...]) -> Any: ...
    def run(self, owner: Any, given: dict[str, Any], observer: Any) -> list[Any]: ...
