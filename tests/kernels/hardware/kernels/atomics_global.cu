//! n 512, bins 24
//! i int[n] mod bins, counts int[n] mod 1, sums float[n], old out int[n], x float[n], l long long[n]

//! clean distinct
//@ launch distinct grid=n//128 block=128
__global__ void distinct(int* counts, float* sums, const float* x)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[k], 3);
    atomicAdd(&sums[511 - k], x[k]);
}

//! clean one_place
//@ launch one_place grid=n//128 block=128
__global__ void one_place(int* counts, float* sums, const float* x)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMax(counts, k);
    atomicAdd(sums, x[k]);
}

//! clean few_places
//@ launch few_places grid=n//128 block=128
__global__ void few_places(const int* i, int* counts, float* sums)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[i[k]], 1);
    atomicAdd(&sums[i[k] * 8], 1.5f);
}

//! clean old_values
//@ launch old_values grid=n//128 block=128
__global__ void old_values(const int* i, int* counts, int* old)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    old[k] = atomicAdd(&counts[i[k]], k) + atomicExch(&counts[511 - k], k);
}

//! clean compare_and_swap
//@ launch compare_and_swap grid=n//128 block=128
__global__ void compare_and_swap(int* counts, int* old)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    old[k] = atomicCAS(&counts[k / 2], 0, k);
}

//! clean long_words
//@ launch long_words grid=n//128 block=128
__global__ void long_words(const int* i, long long* l)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd((unsigned long long*)&l[i[k]], 1ull);
    if (k % 3 == 0) atomicMin(&l[k], (long long)k);
}

//! clean one_place_answered
//@ launch one_place_answered grid=n//128 block=128
__global__ void one_place_answered(int* counts, int* old)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    old[k] = atomicMax(counts, k);
}

//! clean one_sum_answered
//@ launch one_sum_answered grid=n//128 block=128 args=(counts, old, 1)
//@ launch one_sum_answered grid=n//128 block=128 args=(counts, old, 3)
__global__ void one_sum_answered(int* counts, int* old, int every)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k % every == 0) old[k] = atomicAdd(counts, k);
}

//! clean tickets
//@ launch tickets grid=n//128 block=128
__global__ void tickets(int* counts, int* old)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k % 3 == 0) old[k] = atomicAdd(counts, 1);
}

//! clean bits_of_one_place
//@ launch bits_of_one_place grid=n//128 block=128
__global__ void bits_of_one_place(int* counts)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicOr(counts, k);
    atomicXor(counts + 8, 1);
}

//! clean one_place_exchanged
//@ launch one_place_exchanged grid=n//128 block=128
__global__ void one_place_exchanged(int* counts)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicExch(counts, k);
    atomicCAS(counts + 8, k, 7);
}

//! clean one_place_counted
//@ launch one_place_counted grid=n//128 block=128
__global__ void one_place_counted(int* counts)
{
    atomicInc((unsigned*)counts, 100);
}

//! clean long_sum
//@ launch long_sum grid=n//128 block=128 args=(l, 1)
//@ launch long_sum grid=n//128 block=128 args=(l, 5)
__global__ void long_sum(long long* l, int step)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd((unsigned long long*)l, (unsigned long long)k);
    atomicAdd((unsigned long long*)l + 4, (unsigned long long)step);
    atomicMax(l + 8, (long long)step);
}
