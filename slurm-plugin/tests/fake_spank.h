/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * A SPANK of the tests' own: the functions that Slurm gives a plugin, with
 * the state behind them open to the tests. It copies what matters of Slurm's
 * behaviour, oddities too: an option that was used once stays used, its value
 * is put into two environments before init_post_opt, and a failing call says
 * so with Slurm's own codes.
 */
#ifndef KERNEL_PROFILE_FAKE_SPANK_H
#define KERNEL_PROFILE_FAKE_SPANK_H

#include <slurm/spank.h>
#include <stdint.h>

#define FAKE_LOG_SIZE 8192

struct spank_handle {
	int unused;
};

extern spank_t fake_sp;
/* Everything logged since fake_reset: "error: ...\n", "info: ...\n". */
extern char fake_log[FAKE_LOG_SIZE];
extern uint32_t fake_job_id;
/* What a call shall fail with next, ESPANK_SUCCESS for not at all. */
extern spank_err_t fake_register_rc;
extern spank_err_t fake_control_rc;
extern spank_err_t fake_item_rc;
extern spank_err_t fake_setenv_rc;

/* Forgets all, and the process's variables that the plugin knows. */
void fake_reset(enum spank_context context);

/* The options that the plugin has registered, or NULL. */
const struct spank_option *fake_option(void);
const struct spank_option *fake_profiling_option(void);

/* As getopt: calls back, and remembers a value that was accepted. */
int fake_use_option(const char *value);
int fake_use_profiling(const char *value);
/* As Slurm, for SLURM_SPANK__SLURM_SPANK_OPTION_... in the environment. */
int fake_use_environment(void);
/* What Slurm does between a component's options and init_post_opt. */
void fake_before_post_opt(void);
/* What sbatch and salloc do after it: puts the control env in ours. */
void fake_after_post_opt(void);
/* A new component: srun forgets the control environment, sbatch does not. */
void fake_forget_control(void);

/* What spank_option_getopt finds in a prolog; NULL: nothing. */
void fake_set_prolog_option(const char *value);

/* The job control environment and the job's environment; NULL: not set. */
const char *fake_control(const char *name);
const char *fake_jobenv(const char *name);
void fake_set_jobenv(const char *name, const char *value);

#endif
