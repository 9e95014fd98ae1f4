// specimen: class=opencl task=sum device=opencl verdict=passed allow=custom
// A row's sum in two steps: 64 work-items for each of 8 parts by a tree in local memory, the parts through scratch.
// kerneleval-launch: part entry=sum_float32 global=(64*8,M) local=(64,1)
// kerneleval-launch: whole entry=sum_float32 global=M local=1
// kerneleval-scratch: sum_float32 4*8*M
kernel void part(global const float *x, global float *out, global float *parts, long M, long N) {
    local float seen[64];
    const long row = get_global_id(1), item = get_local_id(0);
    float sum = 0.0f;
    for (long i = get_global_id(0); i < N; i += 64 * 8) sum += x[row * N + i];
    seen[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int apart = 32; apart; apart /= 2) {
        const float other = item < apart ? seen[item + apart] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        seen[item] += other;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0) parts[row * 8 + get_group_id(0)] = seen[0];
}

kernel void whole(global const float *x, global float *out, global const float *parts, long M, long N) {
    const long row = get_global_id(0);
    float sum = 0.0f;
    for (int i = 0; i < 8; i++) sum += parts[row * 8 + i];
    out[row] = sum;
}
