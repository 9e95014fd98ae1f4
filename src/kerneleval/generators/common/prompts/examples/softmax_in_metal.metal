// A worked example of prompts; the lines above the first empty one are not shown.

// kerneleval-launch: softmax_float32 grid=M block=256
// kerneleval-launch: softmax_float16 grid=M block=256
// kerneleval-launch: softmax_bfloat16 grid=M block=256
// kerneleval-launch: softmax_backward_float32 grid=M block=256
// kerneleval-launch: softmax_backward_float16 grid=M block=256
// kerneleval-launch: softmax_backward_bfloat16 grid=M block=256

#include <metal_stdlib>
using namespace metal;

#define THREADS 256  // as in the launch lines
#define LANES 32     // threads of a SIMD-group on Apple's GPUs

// Where a thread is: its group has a row.
#define PLACE                                                                                  \
    uint row [[threadgroup_position_in_grid]], uint item [[thread_position_in_threadgroup]],   \
        uint lane [[thread_index_in_simdgroup]], uint part [[simdgroup_index_in_threadgroup]]
struct Place {
    uint row, item, lane, part;
};

// Over all threads of the group, through a number for each SIMD-group; every thread gets the result.
static float sum_over(float x, Place at, threadgroup float *parts) {
    x = simd_sum(x);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // parts may still be read from the call before
    if (at.lane == 0) parts[at.part] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = parts[0];
    for (uint i = 1; i < THREADS / LANES; i++) x += parts[i];
    return x;
}

static float largest_over(float x, Place at, threadgroup float *parts) {
    x = simd_max(x);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (at.lane == 0) parts[at.part] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = parts[0];
    for (uint i = 1; i < THREADS / LANES; i++) x = fmax(x, parts[i]);
    return x;
}

// The largest element of a row, NaN left out, and the sum of exp(x - largest), in which NaN shows.
template <typename T>
static float2 figures(device const T *x, long N, Place at, threadgroup float *parts) {
    float largest = -INFINITY, total = 0.0f;
    for (long j = at.item; j < N; j += THREADS) largest = fmax(largest, float(x[j]));
    largest = largest_over(largest, at, parts);
    for (long j = at.item; j < N; j += THREADS) total += precise::exp(float(x[j]) - largest);
    return float2(largest, sum_over(total, at, parts));
}

template <typename T>
static void forward(device const T *x, device T *out, long N, Place at, threadgroup float *parts) {
    x += at.row * N;
    out += at.row * N;
    const float2 of = figures(x, N, at, parts);
    for (long j = at.item; j < N; j += THREADS) out[j] = T(precise::exp(float(x[j]) - of.x) / of.y);
}

template <typename T>
static void backward(device const T *grad_out, device const T *x, device T *grad_x, long N, Place at,
                     threadgroup float *parts) {
    grad_out += at.row * N;
    x += at.row * N;
    grad_x += at.row * N;
    const float2 of = figures(x, N, at, parts);
    float inner = 0.0f;
    for (long j = at.item; j < N; j += THREADS)
        inner += float(grad_out[j]) * (precise::exp(float(x[j]) - of.x) / of.y);
    inner = sum_over(inner, at, parts);
    for (long j = at.item; j < N; j += THREADS)
        grad_x[j] = T(precise::exp(float(x[j]) - of.x) / of.y * (float(grad_out[j]) - inner));
}

kernel void softmax_float32(device const float *x, device float *out, constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    forward(x, out, N, {row, item, lane, part}, parts);
}

kernel void softmax_float16(device const half *x, device half *out, constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    forward(x, out, N, {row, item, lane, part}, parts);
}

kernel void softmax_bfloat16(device const bfloat *x, device bfloat *out, constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    forward(x, out, N, {row, item, lane, part}, parts);
}

kernel void softmax_backward_float32(device const float *grad_out, device const float *x, device float *grad_x,
                                     constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    backward(grad_out, x, grad_x, N, {row, item, lane, part}, parts);
}

kernel void softmax_backward_float16(device const half *grad_out, device const half *x, device half *grad_x,
                                     constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    backward(grad_out, x, grad_x, N, {row, item, lane, part}, parts);
}

kernel void softmax_backward_bfloat16(device const bfloat *grad_out, device const bfloat *x, device bfloat *grad_x,
                                      constant long &M, constant long &N, PLACE) {
    threadgroup float parts[THREADS / LANES];
    backward(grad_out, x, grad_x, N, {row, item, lane, part}, parts);
}
