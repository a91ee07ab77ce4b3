/* XXH3, 128 bits, seed 0 (Collet, xxHash 0.8;
 * https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): finds accidental changes at the speed of
 * memory. It is no cryptographic hash. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { XXH3_MIN_BYTES = 241 }; /* shorter inputs have other algorithms, which are not implemented */

typedef struct xxh3_hash {
  uint64_t low, high;
} xxh3_hash;

/* The hash of `size` >= XXH3_MIN_BYTES bytes. */
xxh3_hash xxh3_128(const void *data, size_t size);
