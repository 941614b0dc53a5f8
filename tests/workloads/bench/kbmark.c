/*
 * kbmark NUMBER: meets a marker, for programs that have none of their own. 0
 * ends the region.
 */
#include <stdio.h>
#include <stdlib.h>

#include "mark.h"

int main(int argc, char **argv)
{
	char *end = NULL;
	unsigned long number = argc == 2 ? strtoul(argv[1], &end, 10) : 0;

	if (argc != 2 || *argv[1] < '0' || *argv[1] > '9' || *end ||
	    number > MARK_LAST) {
		fprintf(stderr, "usage: kbmark NUMBER (0 to %d)\n", MARK_LAST);
		return 2;
	}
	mark((unsigned int)number);
	return 0;
}
