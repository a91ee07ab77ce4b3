/* A histogram of times, which any number of threads count into at once. */
#pragma once

#include <stdint.h>

#include "base/text.h"

enum { N_LATENCIES = 20 }; /* bounds; beyond the last one there is a bucket more */

typedef struct latencies {
  _Atomic int64_t counts[N_LATENCIES + 1];
  _Atomic int64_t total_ns;
} latencies;

void latencies_count(latencies *x, int64_t ns);

/* Samples of an OpenMetrics histogram; `label` ("" or as `model="a"`) is one that all have. */
void latencies_write(latencies *x, const char *name, const char *label, text_buffer *t);
