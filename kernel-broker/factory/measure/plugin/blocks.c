#include "blocks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "lru.h"

static bool alike(const struct block *a, const struct block *b)
{
	return a->start == b->start && a->end == b->end && a->last == b->last &&
	       a->instructions == b->instructions && a->kind == b->kind &&
	       a->target == b->target && a->width == b->width;
}

static size_t place(const struct blocks *all, const struct block *like)
{
	uint64_t mixed = like->start ^ like->end << 20;

	mixed *= UINT64_C(0x9e3779b97f4a7c15);

	size_t at = (size_t)(mixed >> 32) & (all->size - 1);

	while (all->slots[at] && !alike(all->slots[at], like))
		at = (at + 1) & (all->size - 1);
	return at;
}

static int grow(struct blocks *all)
{
	struct blocks larger = { .size = all->size ? all->size * 2 : 1024 };

	larger.slots = calloc(larger.size, sizeof(struct block *));
	if (!larger.slots)
		return -1;
	for (size_t i = 0; i < all->size; i++) {
		if (all->slots[i])
			larger.slots[place(&larger, all->slots[i])] =
				all->slots[i];
	}
	larger.used = all->used;
	free(all->slots);
	*all = larger;
	return 0;
}

struct block *blocks_get(struct blocks *all, const struct block *like)
{
	if (all->used * 2 >= all->size && grow(all))
		return NULL;

	size_t at = place(all, like);

	if (!all->slots[at]) {
		struct block *fresh = malloc(sizeof(*fresh));

		if (!fresh)
			return NULL;
		*fresh = (struct block){
			.start = like->start,
			.end = like->end,
			.last = like->last,
			.target = like->target,
			.instructions = like->instructions,
			.kind = like->kind,
			.width = like->width,
			.kernel = like->start >= KERNEL_FIRST,
		};
		all->slots[at] = fresh;
		all->used++;
	}
	return all->slots[at];
}

bool blocks_part(struct block *body, uint64_t before, struct block *tail)
{
	const uint64_t page = UINT64_C(1) << PAGE_SHIFT;

	if (body->instructions < 2 || page - body->last % page >= INSN_LONGEST)
		return false;
	*tail = (struct block){
		.start = body->last,
		.end = body->end,
		.last = body->last,
		.target = body->target,
		.instructions = 1,
		.kind = body->kind,
		.width = body->width,
	};
	*body = (struct block){
		.start = body->start,
		.end = body->last,
		.last = before,
		.instructions = body->instructions - 1,
		.kind = INSN_OTHER,
	};
	return true;
}

void blocks_free(struct blocks *all)
{
	for (size_t i = 0; i < all->size; i++)
		free(all->slots[i]);
	free(all->slots);
	*all = (struct blocks){ 0 };
}

static int by_address(const void *a, const void *b)
{
	const struct block *left = *(struct block *const *)a;
	const struct block *right = *(struct block *const *)b;

	if (left->start != right->start)
		return left->start < right->start ? -1 : 1;
	return left->end < right->end ? -1 : left->end > right->end;
}

static void write_line(const struct block *block, enum blocks_list list,
		       FILE *to)
{
	if (list == BLOCKS_RUNS)
		fprintf(to, "%" PRIx64 " %" PRIu32 " %" PRIuFAST64 "\n",
			block->start, block->instructions, block->runs);
	else
		fprintf(to, "%" PRIx64 " %" PRIx64 "\n", block->start,
			block->end);
}

static bool in_region(const struct block *block, uint64_t region)
{
	return block->region == region;
}

static bool in_list(const struct block *block, uint64_t list)
{
	return list == BLOCKS_RAN ? block->ran : block->runs > 0;
}

/* The kernel's blocks that are wanted, in order; NULL when memory is out. */
static struct block **find(const struct blocks *all,
			   bool (*wanted)(const struct block *block,
					  uint64_t what),
			   uint64_t what, size_t *n)
{
	struct block **found = calloc(all->used + 1, sizeof(struct block *));

	*n = 0;
	if (!found)
		return NULL;
	for (size_t i = 0; i < all->size; i++) {
		struct block *block = all->slots[i];

		if (block && block->kernel && wanted(block, what))
			found[(*n)++] = block;
	}
	qsort(found, *n, sizeof(struct block *), by_address);
	return found;
}

/* Of blocks in order: how many lines or pages they lie in. */
static uint64_t units(struct block *const *blocks, size_t n, unsigned int shift)
{
	uint64_t sum = 0, next = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t first = blocks[i]->start >> shift;
		uint64_t behind = ((blocks[i]->end - 1) >> shift) + 1;

		if (first < next)
			first = next;
		if (behind > first) {
			sum += behind - first;
			next = behind;
		}
	}
	return sum;
}

int blocks_text(const struct blocks *all, uint64_t region, struct text *text)
{
	size_t n;
	struct block **found = find(all, in_region, region, &n);

	if (!found)
		return -1;
	text->lines = units(found, n, LINE_SHIFT);
	text->pages = units(found, n, PAGE_SHIFT);
	free(found);
	return 0;
}

int blocks_write(const struct blocks *all, enum blocks_list list, FILE *to)
{
	size_t n;
	struct block **found = find(all, in_list, list, &n);

	if (!found)
		return -1;
	for (size_t i = 0; i < n; i++) {
		/* Two translations of one place ran it together. */
		if (i > 0 && list != BLOCKS_RUNS &&
		    by_address(&found[i - 1], &found[i]) == 0)
			continue;
		write_line(found[i], list, to);
	}
	free(found);
	return ferror(to) ? -1 : 0;
}
