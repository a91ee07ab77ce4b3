/* Plays launches to `sharing` and prints which of them were shared.
 *
 *   test_pays [MICROSECONDS-ALONE MICROSECONDS-SHARED REPEATS]...
 *
 * Each group: as many launches of 8 tiles, which take the first time alone and the second one where they are
 * shared; a shared launch's caller runs half of the tiles. Prints, a line a group, how many were shared and
 * how long all took beside all alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sharing.h"

int main(int argc, char **argv) {
  sharing s = {0};
  int64_t now = 1000000000;
  if (argc % 3 != 1) return 2;
  for (int i = 1; i < argc; i += 3) {
    int64_t alone = atoll(argv[i]) * 1000, shared = atoll(argv[i + 1]) * 1000, n = atoll(argv[i + 2]);
    int64_t n_shared = 0, start = now;
    for (int64_t launch = 0; launch < n; launch++) {
      if (!sharing_pays(&s, now)) {
        now += alone;
        continue;
      }
      sharing_learn(&s, now, now + alone / 2, now + shared, 4, 8);
      n_shared++, now += shared;
    }
    printf("%" PRId64 " %.3f\n", n_shared, (double)(now - start) / (double)(n * alone));
  }
  return 0;
}
