//! n 256
//! x float[n], y out float[n], z out float[n]

//! clean divergent_switch
//@ launch divergent_switch grid=n//64 block=64
__global__ void divergent_switch(const float* x, float* y, float* z)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    switch (i % 5) {
    case 0: y[i] = v; break;
    case 1: z[i] = v * v; y[i] = 1; break;
    case 2: y[i] = x[255 - i]; break;
    case 3: z[i] = x[i / 2]; y[i] = x[i / 4]; break;
    default: y[i] = -v;
    }
}
