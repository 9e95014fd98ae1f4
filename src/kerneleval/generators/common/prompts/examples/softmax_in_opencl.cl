// A worked example of prompts; the lines above the first empty one are not shown.

// kerneleval-launch: softmax_float32 global=M local=1
// kerneleval-launch: softmax_float16 global=M local=1
// kerneleval-launch: softmax_bfloat16 global=M local=1
// Backward in two steps: figures of each row into scratch memory, then the gradients, 1024 of them a work-item.
// kerneleval-launch: rows_float32 entry=softmax_backward_float32 global=M local=1
// kerneleval-launch: gradients_float32 entry=softmax_backward_float32 global=(cdiv(N,1024),M) local=(1,1)
// kerneleval-scratch: softmax_backward_float32 4*3*M
// kerneleval-launch: rows_float16 entry=softmax_backward_float16 global=M local=1
// kerneleval-launch: gradients_float16 entry=softmax_backward_float16 global=(cdiv(N,1024),M) local=(1,1)
// kerneleval-scratch: softmax_backward_float16 4*3*M
// kerneleval-launch: rows_bfloat16 entry=softmax_backward_bfloat16 global=M local=1
// kerneleval-launch: gradients_bfloat16 entry=softmax_backward_bfloat16 global=(cdiv(N,1024),M) local=(1,1)
// kerneleval-scratch: softmax_backward_bfloat16 4*3*M

typedef float16 V;  // sixteen floats
#define WIDTH 16
#define OVERLOADED static inline __attribute__((overloadable))

// One element of each type as float, sixteen of them, and back.
OVERLOADED float get(global const float *p) { return *p; }
OVERLOADED float get(global const half *p) { return vload_half(0, p); }
OVERLOADED float get(global const ushort *p) { return as_float((uint)*p << 16); }
OVERLOADED V get_all(global const float *p) { return vload16(0, p); }
OVERLOADED V get_all(global const half *p) { return vload_half16(0, p); }
OVERLOADED V get_all(global const ushort *p) { return as_float16(convert_uint16(vload16(0, p)) << 16); }

// bfloat16: to nearest even; NaN stays.
OVERLOADED void put(float x, global float *p) { *p = x; }
OVERLOADED void put(float x, global half *p) { vstore_half_rte(x, 0, p); }
OVERLOADED void put(float x, global ushort *p) {
    const uint bits = as_uint(x);
    *p = isnan(x) ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
OVERLOADED void put_all(V x, global float *p) { vstore16(x, 0, p); }
OVERLOADED void put_all(V x, global half *p) { vstore_half16_rte(x, 0, p); }
OVERLOADED void put_all(V x, global ushort *p) {
    const uint16 bits = as_uint16(x), nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vstore16(convert_ushort16(isnan(x) ? (uint16)(0x7fc0) : nearest), 0, p);
}

static inline float sum_of(V v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    return (b.x + b.z) + (b.y + b.w);
}
static inline float largest_of(V v) {
    const float8 a = fmax(v.lo, v.hi);
    const float4 b = fmax(a.lo, a.hi);
    return fmax(fmax(b.x, b.z), fmax(b.y, b.w));
}

// The vector at j of a row, `beyond` past its end. NaN is no largest element: it shows in the sum.
#define KERNELS(KIND, T)                                                                                            \
    OVERLOADED V part(global const T *p, long j, long N, float beyond) {                                            \
        if (j + WIDTH <= N) return get_all(p + j);                                                                  \
        float v[WIDTH];                                                                                             \
        for (int k = 0; k < WIDTH; k++) v[k] = j + k < N ? get(p + j + k) : beyond;                                 \
        return vload16(0, v);                                                                                       \
    }                                                                                                               \
    OVERLOADED void keep(V x, global T *p, long j, long N) {                                                        \
        if (j + WIDTH <= N) {                                                                                       \
            put_all(x, p + j);                                                                                      \
            return;                                                                                                 \
        }                                                                                                           \
        float v[WIDTH];                                                                                             \
        vstore16(x, 0, v);                                                                                          \
        for (int k = 0; j + k < N; k++) put(v[k], p + j + k);                                                       \
    }                                                                                                               \
    OVERLOADED float largest(global const T *x, long N) {                                                           \
        V most = -INFINITY;                                                                                         \
        for (long j = 0; j < N; j += WIDTH) most = fmax(most, part(x, j, N, -INFINITY));                            \
        return largest_of(most);                                                                                    \
    }                                                                                                               \
    OVERLOADED float total(global const T *x, float top, long N) {                                                  \
        V sum = 0.0f;                                                                                               \
        for (long j = 0; j < N; j += WIDTH) sum += exp(part(x, j, N, -INFINITY) - top);                             \
        return sum_of(sum);                                                                                         \
    }                                                                                                               \
    kernel void softmax_##KIND(global const T *x, global T *out, long M, long N) {                                  \
        const long row = get_global_id(0);                                                                          \
        x += row * N, out += row * N;                                                                               \
        const float top = largest(x, N), sum = total(x, top, N);                                                    \
        for (long j = 0; j < N; j += WIDTH) keep(exp(part(x, j, N, 0.0f) - top) / sum, out, j, N);                  \
    }                                                                                                               \
    kernel void rows_##KIND(global const T *grad_out, global const T *x, global T *grad_x, global float *figures,   \
                            long M, long N) {                                                                       \
        const long row = get_global_id(0);                                                                          \
        grad_out += row * N, x += row * N;                                                                          \
        const float top = largest(x, N), sum = total(x, top, N);                                                    \
        V inner = 0.0f;                                                                                             \
        for (long j = 0; j < N; j += WIDTH)                                                                         \
            inner += part(grad_out, j, N, 0.0f) * (exp(part(x, j, N, -INFINITY) - top) / sum);                      \
        vstore3((float3)(top, sum, sum_of(inner)), row, figures);                                                   \
    }                                                                                                               \
    kernel void gradients_##KIND(global const T *grad_out, global const T *x, global T *grad_x,                     \
                                 global const float *figures, long M, long N) {                                     \
        const long row = get_global_id(1), from = get_global_id(0) * 1024;                                          \
        const float3 of = vload3(row, figures);                                                                     \
        grad_out += row * N, x += row * N, grad_x += row * N;                                                       \
        for (long j = from; j < min(from + 1024, N); j += WIDTH) {                                                  \
            const V y = exp(part(x, j, N, 0.0f) - of.x) / of.y;                                                     \
            keep(y * (part(grad_out, j, N, 0.0f) - of.z), grad_x, j, N);                                            \
        }                                                                                                           \
    }

KERNELS(float32, float)
KERNELS(float16, half)
KERNELS(bfloat16, ushort)
