#include "base/latencies.h"

#include <inttypes.h>
#include <stdatomic.h>

/* 10 us to 25 s, in steps of about 2.2. */
static const int64_t BOUNDS_NS[N_LATENCIES] = {10000,      25000,      50000,      100000,      250000,
                                               500000,     1000000,    2500000,    5000000,     10000000,
                                               25000000,   50000000,   100000000,  250000000,   500000000,
                                               1000000000, 2500000000, 5000000000, 10000000000, 25000000000};

void latencies_count(latencies *x, int64_t ns) {
  int i = 0;
  while (i < N_LATENCIES && ns > BOUNDS_NS[i]) i++;
  atomic_fetch_add_explicit(&x->counts[i], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&x->total_ns, ns, memory_order_relaxed);
}

void latencies_write(latencies *x, const char *name, const char *label, text_buffer *t) {
  const char *comma = *label ? "," : "", *open = *label ? "{" : "", *close = *label ? "}" : "";
  int64_t n = 0;
  for (int i = 0; i <= N_LATENCIES; i++) {
    n += atomic_load_explicit(&x->counts[i], memory_order_relaxed);
    text_add(t, "%s_bucket{%s%sle=\"", name, label, comma);
    if (i < N_LATENCIES) text_add(t, "%g", (double)BOUNDS_NS[i] / 1e9);
    else text_add(t, "+Inf");
    text_add(t, "\"} %" PRId64 "\n", n);
  }
  double total = (double)atomic_load_explicit(&x->total_ns, memory_order_relaxed) / 1e9;
  text_add(t, "%s_count%s%s%s %" PRId64 "\n%s_sum%s%s%s %.9f\n", name, open, label, close, n, name, open,
           label, close, total);
}
