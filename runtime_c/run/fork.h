/* Programs that forked children go on with. */
#pragma once

#include "program/program.h"

/* Keep the program in the list of those that a fork locks; a forked child calls `restart` for each. */
void program_enlist(svm_program *p, void (*restart)(svm_program *p));
void program_delist(svm_program *p);
