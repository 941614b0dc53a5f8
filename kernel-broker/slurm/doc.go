// Package slurm looks at slurmctld and changes what the product may change
// there, through Slurm's own commands. It decides nothing.
//
// Commands instead of the C library: their output is stable from 22.05 on,
// whereas the library must match slurmctld to the micro version. Only fields
// that users cannot write into are parsed, but for AdminComment, which Slurm
// lets its own user alone set.
package slurm
