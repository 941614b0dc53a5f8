/*
 * kbcount: counts what a guest under QEMU executes between markers, apart for
 * user and kernel, and writes down which blocks of the kernel ran.
 *
 *	-plugin kbcount.so,out=FILE[,data=1][,trace=FILE][,regiontrace=FILE]
 *		[,runs=FILE][,branches=FILE][,thunks=BEGIN-END]
 *
 * out          JSON, one record for each region between two markers
 * data         1: out has what models of a data cache and of a translation
 *              buffer say, which takes a call for each access to memory
 * trace        "start end" in hex of each block of the kernel that ran
 * regiontrace  the same, of what ran inside of regions
 * runs         "start instructions runs" of each block that ran in regions (an
 *              iteration of a string instruction is a run of its own): where
 *              the instructions went
 * branches     which branches of the kernel were taken in regions, and what ran
 *              between them, with how often (flow.h)
 * thunks       where the kernel has its thunks, in hex: branches go through them
 *
 * Counting is by translated block: a block that a fault or a timer leaves
 * early counts whole. With QEMU's -icount the same guest gives the same counts.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "core.h"
#include "insn.h"
#include "qemu_plugin.h"
#include "regions.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static struct {
	const char *out;
	const char *trace;
	const char *region_trace;
	const char *runs;
	const char *branches;
	const char *thunks;

	/* Translating and marking happen on all processors' threads. */
	pthread_mutex_t lock;
	struct blocks blocks;
	struct regions regions;
	atomic_uint_fast64_t
		region; /* the number of the open one, 0 for none */

	struct core *cores;
	unsigned int n_cores;
} kb = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void die(const char *what)
{
	fprintf(stderr, "kbcount: %s: %s\n", what, strerror(errno));
	/* Not exit(): that would run the handlers of a QEMU in mid-work. */
	_Exit(1);
}

static void on_block(unsigned int vcpu, void *data)
{
	struct block *block = data;
	uint64_t region =
		atomic_load_explicit(&kb.region, memory_order_relaxed);

	if (!atomic_load_explicit(&block->ran, memory_order_relaxed))
		atomic_store_explicit(&block->ran, true, memory_order_relaxed);
	if (!region)
		return;
	atomic_store_explicit(&block->region, region, memory_order_relaxed);
	/* Two processors may lose a run to each other; it is not for counting. */
	atomic_store_explicit(
		&block->runs,
		atomic_load_explicit(&block->runs, memory_order_relaxed) + 1,
		memory_order_relaxed);
	if (vcpu < kb.n_cores)
		core_run(&kb.cores[vcpu], block);
}

static void on_data(unsigned int vcpu, qemu_plugin_meminfo_t info,
		    uint64_t address, void *data)
{
	if (atomic_load_explicit(&kb.region, memory_order_relaxed) &&
	    vcpu < kb.n_cores)
		core_access(&kb.cores[vcpu], data, address,
			    UINT64_C(1) << qemu_plugin_mem_size_shift(info));
}

static void on_marker(unsigned int vcpu, void *data)
{
	uint32_t marker = (uint32_t)(uintptr_t)data;
	struct counts now = { 0 };
	struct text text = { 0 };

	(void)vcpu;
	pthread_mutex_lock(&kb.lock);
	for (unsigned int i = 0; i < kb.n_cores; i++)
		core_sum(&kb.cores[i], &now);
	if (marker == 0) {
		if (blocks_text(&kb.blocks, kb.regions.length, &text))
			kb.regions.lost++;
		regions_end(&kb.regions, &now, &text);
	} else {
		if (!atomic_load(&kb.region)) {
			for (unsigned int i = 0; i < kb.n_cores; i++)
				core_break(&kb.cores[i]);
		}
		regions_begin(&kb.regions, marker, &now);
	}
	atomic_store(&kb.region, kb.regions.open ? kb.regions.length : 0);
	pthread_mutex_unlock(&kb.lock);
}

static void find_markers(struct qemu_plugin_tb *tb, size_t n)
{
	uint32_t marker;

	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (insn_is_marker(qemu_plugin_insn_data(insn),
				   qemu_plugin_insn_size(insn), &marker))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_marker, QEMU_PLUGIN_CB_NO_REGS,
				(void *)(uintptr_t)marker);
	}
}

static struct block *get_block(const struct block *like)
{
	pthread_mutex_lock(&kb.lock);
	struct block *block = blocks_get(&kb.blocks, like);
	pthread_mutex_unlock(&kb.lock);
	if (!block)
		die("block");
	return block;
}

static uint64_t second_last(const struct qemu_plugin_tb *tb, size_t n)
{
	return n > 1 ? qemu_plugin_insn_vaddr(
			       qemu_plugin_tb_get_insn(tb, n - 2)) :
		       0;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	if (n == 0)
		return;

	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
	uint64_t address = qemu_plugin_insn_vaddr(last);
	size_t size = qemu_plugin_insn_size(last);
	struct insn end = insn_read(qemu_plugin_insn_data(last), size, address);
	struct block like = {
		.start = qemu_plugin_tb_vaddr(tb),
		.end = address + size,
		.last = address,
		.target = end.target,
		.instructions = (uint32_t)n,
		.kind = (uint8_t)end.kind,
		.width = end.width,
	};
	struct block tail;

	/* QEMU calls nothing for an instruction that it took out. */
	if (blocks_part(&like, second_last(tb, n), &tail))
		qemu_plugin_register_vcpu_insn_exec_cb(last, on_block,
						       QEMU_PLUGIN_CB_NO_REGS,
						       get_block(&tail));

	struct block *block = get_block(&like);

	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block,
					     QEMU_PLUGIN_CB_NO_REGS, block);
	for (size_t i = 0; kb.regions.data && i < n; i++)
		qemu_plugin_register_vcpu_mem_cb(
			qemu_plugin_tb_get_insn(tb, i), on_data,
			QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
	if (!block->kernel)
		find_markers(tb, n);
}

static int write_blocks(int list, FILE *to)
{
	return blocks_write(&kb.blocks, (enum blocks_list)list, to);
}

static int write_regions(int list, FILE *to)
{
	(void)list;
	return regions_write(&kb.regions, to);
}

static int write_branches(int list, FILE *to)
{
	const struct flow **flows = calloc(kb.n_cores, sizeof(*flows));
	int failed;

	(void)list;
	if (!flows)
		return -1;
	for (unsigned int i = 0; i < kb.n_cores; i++)
		flows[i] = kb.cores[i].flow;
	failed = flow_write(flows, kb.n_cores, to);
	free(flows);
	return failed;
}

/* A file that is not whole must not look like a result: it is removed. */
static void save(const char *path, int (*write)(int, FILE *), int list)
{
	FILE *to;

	if (!path)
		return;
	to = fopen(path, "w");
	if (!to)
		die(path);

	int failed = write(list, to);

	if (fclose(to) || failed) {
		remove(path);
		die(path);
	}
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	pthread_mutex_lock(&kb.lock);
	save(kb.trace, write_blocks, BLOCKS_RAN);
	save(kb.region_trace, write_blocks, BLOCKS_REGION);
	save(kb.runs, write_blocks, BLOCKS_RUNS);
	save(kb.branches, write_branches, 0);
	save(kb.out, write_regions, 0);
	pthread_mutex_unlock(&kb.lock);
}

static int read_argument(char *argument)
{
	static const struct {
		const char *name;
		const char **value;
	} known[] = {
		{ "out=", &kb.out },
		{ "trace=", &kb.trace },
		{ "regiontrace=", &kb.region_trace },
		{ "runs=", &kb.runs },
		{ "branches=", &kb.branches },
		{ "thunks=", &kb.thunks },
	};

	if (strcmp(argument, "data=1") == 0) {
		kb.regions.data = true;
		return 0;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t length = strlen(known[i].name);

		if (strncmp(argument, known[i].name, length) == 0 &&
		    argument[length]) {
			*known[i].value = strdup(argument + length);
			return *known[i].value ? 0 : -1;
		}
	}
	fprintf(stderr,
		"kbcount: argument \"%s\": not one of out=FILE, "
		"data=1, trace=FILE, regiontrace=FILE, runs=FILE, branches=FILE, "
		"thunks=BEGIN-END\n",
		argument);
	return -1;
}

static int new_flow(struct core *core)
{
	struct flow *flow = calloc(1, sizeof(*flow));

	if (!flow) {
		fprintf(stderr, "kbcount: no memory for branches\n");
		return -1;
	}
	if (kb.thunks && sscanf(kb.thunks, "%" SCNx64 "-%" SCNx64,
				&flow->thunks_begin, &flow->thunks_end) != 2) {
		fprintf(stderr, "kbcount: thunks=%s: not BEGIN-END in hex\n",
			kb.thunks);
		free(flow);
		return -1;
	}
	core->flow = flow;
	return 0;
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			int argc, char **argv)
{
	if (!info->system_emulation || strcmp(info->target_name, "x86_64")) {
		fprintf(stderr, "kbcount: only for a whole x86_64 machine\n");
		return -1;
	}
	for (int i = 0; i < argc; i++) {
		if (read_argument(argv[i]))
			return -1;
	}
	kb.n_cores = (unsigned int)info->system.max_vcpus;
	kb.cores = calloc(kb.n_cores, sizeof(*kb.cores));
	if (!kb.cores) {
		fprintf(stderr, "kbcount: no memory for %u processors\n",
			kb.n_cores);
		return -1;
	}
	for (unsigned int i = 0; kb.branches && i < kb.n_cores; i++) {
		if (new_flow(&kb.cores[i]))
			return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
	return 0;
}
