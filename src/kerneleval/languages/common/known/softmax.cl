// kerneleval-launch: softmax_float32 global=16*M local=16

// A work-group a row: vectors, local memory and a barrier, as kernels of candidates have them.
kernel void softmax_float32(global const float *x, global float *out, long M, long N) {
    local float parts[16];
    const int item = get_local_id(0);
    x += get_group_id(0) * N, out += get_group_id(0) * N;
    float16 sums = 0.0f;
    for (long j = 16 * item; j < N; j += 256) {
        float v[16];
        for (int k = 0; k < 16; k++) v[k] = j + k < N ? x[j + k] : -INFINITY;
        sums += exp(vload16(0, v));
    }
    const float8 half_of = sums.lo + sums.hi;
    const float4 quarter = half_of.lo + half_of.hi;
    parts[item] = (quarter.x + quarter.z) + (quarter.y + quarter.w);
    barrier(CLK_LOCAL_MEM_FENCE);
    float total = 0.0f;
    for (int k = 0; k < 16; k++) total += parts[k];
    for (long j = item; j < N; j += 16) out[j] = exp(x[j]) / total;
}
