/*
 * Markers for whoever counts instructions from outside: an instruction that
 * does nothing, with a number in its operand. See the plugin kbcount.
 */
#ifndef BENCH_MARK_H
#define BENCH_MARK_H

/* The highest number of a region; regions begin at 1. */
#define MARK_LAST 63

#define MARK(number)                                                  \
	__asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t.long %c0" ::"i"( \
				 0x7ab00000 + (number))               \
			 : "memory")

/* Ends the region that was begun. */
#define MARK_END() MARK(0)

/* Begins a region by a number that is not known when compiling. */
void mark(unsigned int number);

#endif
