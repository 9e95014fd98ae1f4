// kerneleval-launch: softmax_float32 grid=M block=32

#include <metal_stdlib>
using namespace metal;

kernel void softmax_float32(device const float *x, device float *out, constant long &M, constant long &N,
                            uint row [[threadgroup_position_in_grid]], uint item [[thread_position_in_threadgroup]]) {
    threadgroup float parts[32];
    x += row * N;
    out += row * N;
    float sum = 0.0f;
    for (long j = item; j < N; j += 32) sum += precise::exp(x[j]);
    parts[item] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = 0; i < 32; i++) total += parts[i];
    for (long j = item; j < N; j += 32) out[j] = precise::exp(x[j]) / total;
}
