#include "mark.h"

#include <stdlib.h>

/* The number is part of the instruction, so there is one for each. */
#define CASE(n)          \
	case n:          \
		MARK(n); \
		return
#define CASES(n)       \
	CASE(n);       \
	CASE((n) + 1); \
	CASE((n) + 2); \
	CASE((n) + 3); \
	CASE((n) + 4); \
	CASE((n) + 5); \
	CASE((n) + 6); \
	CASE((n) + 7)

void mark(unsigned int number)
{
	switch (number) {
		CASES(0);
		CASES(8);
		CASES(16);
		CASES(24);
		CASES(32);
		CASES(40);
		CASES(48);
		CASES(56);
	}
	abort();
}
