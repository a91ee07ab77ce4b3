/* Prints what the control groups named by the file argv[2] grant under argv[1], and the CPUs of this process.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/cpus.h"

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  printf("%" PRId64 " %d\n", cpus_granted(argv[1], argv[2]), (int)cpus_available());
  return 0;
}
