# SPDX-License-Identifier: Apache-2.0
"""The facts of TensorFlow's operators, as text; ``signatures`` reads it and explains the notation."""

from __future__ import annotations

OPERATORS = """
# Element by element
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Erf Erfc Erfinv (x: T) -> y: T; T
Exp Expm1 Floor Inv Invert Lgamma Log Log1p Ndtri Neg Reciprocal Rint Round (x: T) -> y: T; T
Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh (x: T) -> y: T; T
IsFinite IsInf IsNan (x: T) -> y: bool; T
LogicalNot(x: bool) -> y: bool
LogicalAnd LogicalOr (x: bool, y: bool) -> z: bool
Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan (x: T, y: T) -> z: T; T
FloorDiv FloorMod LeftShift Maximum Minimum Mod Mul MulNoNan Pow (x: T, y: T) -> z: T; T
RealDiv RightShift SquaredDifference Sub TruncateDiv TruncateMod (x: T, y: T) -> z: T; T
Xdivy Xlog1py Xlogy (x: T, y: T) -> z: T; T
Greater GreaterEqual Less LessEqual (x: T, y: T) -> z: bool; T
Equal NotEqual (x: T, y: T) -> z: bool; T, incompatible_shape_error=true
ApproximateEqual(x: T, y: T) -> z: bool; T, tolerance=1e-05
AddN(inputs: N*T) -> sum: T; N, T
AccumulateNV2(inputs: N*T) -> sum: T; N, T, shape
Cast(x: SrcT) -> y: DstT; SrcT, DstT, Truncate=false
Bitcast(input: T) -> output: type; T, type
ClipByValue(t: T, clip_value_min: T, clip_value_max: T) -> output: T; T
Bucketize(input: T) -> output: int32; T, boundaries
Select(condition: bool, t: T, e: T) -> output: T; T
SelectV2(condition: bool, t: T, e: T) -> output: T; T
FakeQuantWithMinMaxArgs(inputs: float32) -> outputs: float32; min=-6.0, max=6.0, num_bits=8,
    narrow_range=false
FakeQuantWithMinMaxVars(inputs: float32, min: float32, max: float32) -> outputs: float32; num_bits=8,
    narrow_range=false
FakeQuantWithMinMaxVarsPerChannel(inputs: float32, min: float32, max: float32) -> outputs: float32;
    num_bits=8, narrow_range=false

# Activations
Elu Relu Relu6 Selu Softplus Softsign (features: T) -> activations: T; T
LeakyRelu(features: T) -> activations: T; alpha=0.2, T=float32
Softmax(logits: T) -> softmax: T; T
LogSoftmax(logits: T) -> logsoftmax: T; T

# Convolutions, windows and normalisation
Conv2D(input: T, filter: T) -> output: T; T, strides, use_cudnn_on_gpu=true, padding,
    explicit_paddings=[], data_format="NHWC", dilations=[1, 1, 1, 1]
DepthwiseConv2dNative(input: T, filter: T) -> output: T; T, strides, padding, explicit_paddings=[],
    data_format="NHWC", dilations=[1, 1, 1, 1]
Conv2DBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T; T, strides,
    use_cudnn_on_gpu=true, padding, explicit_paddings=[], data_format="NHWC", dilations=[1, 1, 1, 1]
DepthwiseConv2dNativeBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T; T,
    strides, padding, explicit_paddings=[], data_format="NHWC", dilations=[1, 1, 1, 1]
Conv3D(input: T, filter: T) -> output: T; T, strides, padding, explicit_paddings=[], data_format="NDHWC",
    dilations=[1, 1, 1, 1, 1]
Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> output: T; T, strides, padding,
    data_format="NDHWC", dilations=[1, 1, 1, 1, 1], Tshape=int32
Dilation2D(input: T, filter: T) -> output: T; T, strides, rates, padding
MaxPool(input: T) -> output: T; T=float32, ksize, strides, padding, explicit_paddings=[], data_format="NHWC"
MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T; T=float32, padding, data_format="NHWC"
MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax; ksize, strides, Targmax=int64, padding,
    include_batch_in_index=false, T
AvgPool(value: T) -> output: T; ksize, strides, padding, data_format="NHWC", T
MaxPool3D AvgPool3D (input: T) -> output: T; ksize, strides, padding, data_format="NDHWC", T
FusedBatchNorm(x: T, scale: T, offset: T, mean: T, variance: T) -> y: T, batch_mean: T, batch_variance: T,
    reserve_space_1: T, reserve_space_2: T; T, epsilon=0.0001, exponential_avg_factor=1.0,
    data_format="NHWC", is_training=true
FusedBatchNormV2(x: T, scale: U, offset: U, mean: U, variance: U) -> y: T, batch_mean: U,
    batch_variance: U, reserve_space_1: U, reserve_space_2: U; T, U, epsilon=0.0001,
    exponential_avg_factor=1.0, data_format="NHWC", is_training=true
FusedBatchNormV3(x: T, scale: U, offset: U, mean: U, variance: U) -> y: T, batch_mean: U,
    batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U; T, U, epsilon=0.0001,
    exponential_avg_factor=1.0, data_format="NHWC", is_training=true
BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> result: T; T, variance_epsilon,
    scale_after_normalization
BiasAdd(value: T, bias: T) -> output: T; T, data_format="NHWC"
BiasAddV1(value: T, bias: T) -> output: T; T
LRN(input: T) -> output: T; depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, T=float32
L2Loss(t: T) -> output: T; T

# Products
MatMul(a: T, b: T) -> product: T; transpose_a=false, transpose_b=false, T, grad_a=false, grad_b=false
BatchMatMul BatchMatMulV2 (x: T, y: T) -> output: T; T, adj_x=false, adj_y=false, grad_x=false, grad_y=false
BatchMatMulV3(x: Ta, y: Tb) -> output: Tout; Ta, Tb, Tout, adj_x=false, adj_y=false, grad_x=false,
    grad_y=false
Einsum(inputs: N*T) -> output: T; equation, N, T

# Reductions, orders, sums along an axis
EuclideanNorm Max Mean Min Prod Sum (input: T, reduction_indices: Tidx) -> output: T; keep_dims=false, T,
    Tidx=int32
All Any (input: bool, reduction_indices: Tidx) -> output: bool; keep_dims=false, Tidx=int32
ArgMax(input: T, dimension: Tidx) -> output: output_type; T, Tidx=int32, output_type=int64
ArgMin(input: T, dimension: Tidx) -> output: output_type; T, Tidx=int32, output_type=int64
TopK(input: T) -> values: T, indices: int32; k, sorted=true, T
TopKV2(input: T, k: Tk) -> values: T, indices: index_type; sorted=true, T, Tk=int32, index_type=int32
InTopKV2(predictions: float32, targets: T, k: T) -> precision: bool; T=int32
Cumprod Cumsum (x: T, axis: Tidx) -> out: T; exclusive=false, reverse=false, T, Tidx=int32
SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum (data: T, segment_ids: Tindices) -> output: T; T,
    Tindices
UnsortedSegmentMax UnsortedSegmentSum (data: T, segment_ids: Tindices, num_segments: Tnumsegments) ->
    output: T; T, Tindices, Tnumsegments=int32

# Shapes
Shape(input: T) -> output: out_type; T, out_type=int32
ShapeN(input: N*T) -> output: N*out_type; N, T, out_type=int32
Size(input: T) -> output: out_type; T, out_type=int32
Rank(input: T) -> output: int32; T
Reshape(tensor: T, shape: Tshape) -> output: T; T, Tshape=int32
EnsureShape(input: T) -> output: T; shape, T
ExpandDims(input: T, dim: Tdim) -> output: T; T, Tdim=int32
Squeeze(input: T) -> output: T; T, squeeze_dims=[]
BroadcastTo(input: T, shape: Tidx) -> output: T; T, Tidx=int32
BroadcastArgs(s0: T, s1: T) -> r0: T; T=int32

# Movement
Transpose ConjugateTranspose (x: T, perm: Tperm) -> y: T; T, Tperm=int32
InvertPermutation(x: T) -> y: T; T=int32
Concat(concat_dim: int32, values: N*T) -> output: T; N, T
ConcatV2(values: N*T, axis: Tidx) -> output: T; N, T, Tidx=int32
Pack(values: N*T) -> output: T; N, T, axis=0
Unpack(value: T) -> output: num*T; num, T, axis=0
Split(split_dim: int32, value: T) -> output: num_split*T; num_split, T
SplitV(value: T, size_splits: Tlen, split_dim: int32) -> output: num_split*T; num_split, T, Tlen=int64
Slice(input: T, begin: Index, size: Index) -> output: T; T, Index
StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> output: T; T, Index, begin_mask=0,
    end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0
Gather(params: Tparams, indices: Tindices) -> output: Tparams; validate_indices=true, Tparams, Tindices
GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> output: Tparams; batch_dims=0, Tparams,
    Tindices, Taxis
GatherNd(params: Tparams, indices: Tindices) -> output: Tparams; Tparams, Tindices, bad_indices_policy=""
ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> output: T; T, Tindices, bad_indices_policy=""
TensorScatterAdd TensorScatterSub (tensor: T, indices: Tindices, updates: T) -> output: T; T, Tindices,
    bad_indices_policy=""
TensorScatterMax TensorScatterMin (tensor: T, indices: Tindices, updates: T) -> output: T; T, Tindices,
    bad_indices_policy=""
TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> output: T; T, Tindices, bad_indices_policy=""
DynamicStitch(indices: N*int32, data: N*T) -> merged: T; N, T
DynamicPartition(data: T, partitions: int32) -> outputs: num_partitions*T; num_partitions, T
Tile(input: T, multiples: Tmultiples) -> output: T; T, Tmultiples=int32
Pad(input: T, paddings: Tpaddings) -> output: T; T, Tpaddings=int32
PadV2(input: T, paddings: Tpaddings, constant_values: T) -> output: T; T, Tpaddings=int32
MirrorPad(input: T, paddings: Tpaddings) -> output: T; T, Tpaddings=int32, mode
Reverse(tensor: T, dims: bool) -> output: T; T
ReverseV2(tensor: T, axis: Tidx) -> output: T; Tidx=int32, T
ReverseSequence(input: T, seq_lengths: Tlen) -> output: T; seq_dim, batch_dim=0, T, Tlen=int64
Roll(input: T, shift: Tshift, axis: Taxis) -> output: T; T, Tshift, Taxis
SpaceToDepth DepthToSpace (input: T) -> output: T; T, block_size, data_format="NHWC"
SpaceToBatch(input: T, paddings: Tpaddings) -> output: T; T, Tpaddings=int32, block_size
BatchToSpace(input: T, crops: Tidx) -> output: T; T, block_size, Tidx=int32
SpaceToBatchND(input: T, block_shape: Tblock_shape, paddings: Tpaddings) -> output: T; T,
    Tblock_shape=int32, Tpaddings=int32
BatchToSpaceND(input: T, block_shape: Tblock_shape, crops: Tcrops) -> output: T; T, Tblock_shape=int32,
    Tcrops=int32
MatrixBandPart(input: T, num_lower: Tindex, num_upper: Tindex) -> band: T; T, Tindex=int64
MatrixDiag(diagonal: T) -> output: T; T
MatrixDiagPart(input: T) -> diagonal: T; T
MatrixSetDiag(input: T, diagonal: T) -> output: T; T
Unique(x: T) -> y: T, idx: out_idx; T, out_idx=int32

# Made from sizes, and from values
Range(start: Tidx, limit: Tidx, delta: Tidx) -> output: Tidx; Tidx=int32
LinSpace(start: T, stop: T, num: Tidx) -> output: T; T, Tidx=int32
Fill(dims: index_type, value: T) -> output: T; T, index_type=int32
ZerosLike OnesLike (x: T) -> y: T; T
Where(input: T) -> index: int64; T=bool
OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> output: T; axis=-1, T, TI=int64
RandomStandardNormal RandomUniform TruncatedNormal (shape: T) -> output: dtype; seed=0, seed2=0, dtype, T

# Images and boxes
ResizeArea(images: T, size: int32) -> resized_images: float32; T, align_corners=false
ResizeBicubic ResizeBilinear (images: T, size: int32) -> resized_images: float32; T, align_corners=false,
    half_pixel_centers=false
ResizeNearestNeighbor(images: T, size: int32) -> resized_images: T; T, align_corners=false,
    half_pixel_centers=false
CropAndResize(image: T, boxes: float32, box_ind: int32, crop_size: int32) -> crops: float32; T,
    method="bilinear", extrapolation_value=0.0
NonMaxSuppression(boxes: float32, scores: float32, max_output_size: int32) -> selected_indices: int32;
    iou_threshold=0.5
NonMaxSuppressionV2(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold) ->
    selected_indices: int32; T=float32, T_threshold=float32
NonMaxSuppressionV3(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold,
    score_threshold: T_threshold) -> selected_indices: int32; T=float32, T_threshold=float32
NonMaxSuppressionV4(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold,
    score_threshold: T_threshold) -> selected_indices: int32, valid_outputs: int32; T=float32,
    T_threshold=float32, pad_to_max_output_size=false
NonMaxSuppressionV5(boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T,
    soft_nms_sigma: T) -> selected_indices: int32, selected_scores: T, valid_outputs: int32; T=float32,
    pad_to_max_output_size=false
CombinedNonMaxSuppression(boxes: float32, scores: float32, max_output_size_per_class: int32,
    max_total_size: int32, iou_threshold: float32, score_threshold: float32) -> nmsed_boxes: float32,
    nmsed_scores: float32, nmsed_classes: float32, valid_detections: int32; pad_per_class=false,
    clip_boxes=true

# Book-keeping
Const() -> output: dtype; value, dtype
Placeholder() -> output: dtype; dtype, shape=none
PlaceholderV2() -> output: dtype; dtype, shape
PlaceholderWithDefault(input: dtype) -> output: dtype; dtype, shape
Identity StopGradient Snapshot (input: T) -> output: T; T
IdentityN(input: [T]) -> output: [T]; T
PreventGradient(input: T) -> output: T; T, message=""
CheckNumerics CheckNumericsV2 (tensor: T) -> output: T; T, message
Print(input: T, data: [U]) -> output: T; T, U, message="", first_n=-1, summarize=3
Assert(condition: bool, data: [T]) -> ; T, summarize=3
NoOp() ->
Switch(data: T, pred: bool) -> output_false: T, output_true: T; T
Merge(inputs: N*T) -> output: T, value_index: int32; T, N
VariableV2() -> ref: dtype; shape, dtype, container="", shared_name=""
"""
