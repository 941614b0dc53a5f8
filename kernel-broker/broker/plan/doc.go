// SPDX-License-Identifier: Apache-2.0

// Package plan decides: given what is recorded, what slurmctld and the agents
// say, and the time, it returns the records as they must become and the actions
// to take. It does no I/O, reads no clock and holds no state, so every branch
// can be tested by a table, and a broker that was killed decides the same again.
//
// The records are committed before any action is taken. Actions are level
// triggered: one is asked for as long as what it is to bring about is not seen,
// so each may be lost or done twice.
//
// # A node
//
//	desired kernel                    while
//	the owner's kernel                an allocation that is switching or ready has the node, also when the node has
//	                                  lost it: then nothing boots and no slurmd runs until the job is off it
//	unchanged                         the node is kept for the next job, or a job is on it
//	stock                             nobody owns it and it runs stock, or no job is on it and Slurm waits for its
//	                                  boot, or it is down or drained
//	undecided                         nobody knows the node yet, or it was resumed on another kernel than stock:
//	                                  Slurm is made to wait for its boot first
//
//	state     it means                           goes to
//	steady    proven to run what is wanted       loading: the desired kernel changed
//	                                             unproven: another boot showed up
//	loading   the agent fetches, checks, loads,  booting: the agent says it executes
//	          and waits until Slurm was seen     steady: the change was taken back, or the proof came
//	                                             failed: the agent gives up, or is silent
//	booting   silent since its kexec             steady: token, boot id and build id prove the kernel
//	                                             loading: another kernel came up, and a try is left
//	                                             reset: no sign of life within the boot time-out
//	                                             failed: another kernel came up, and no try is left
//	reset     booting, after a reset from        as booting
//	          outside
//	failed    cannot be had; cause recorded      loading or steady: the job is off the node (kernel's
//	                                             fault), or an administrator resumed it (node's fault)
//
//	A drain that the gate brought about, or a registration on a profile's kernel, is
//	undone when the node is steady on stock, free, and nobody owns it; any other is
//	somebody else's matter.
//
// What an administrator says of a node (Slurm.Restore) is kept over its return, and a boot
// that an administrator requests (Reboot) is the machine's own: see administrator.go, reboot.go.
//
// # An allocation
//
//	phase      goes to      when
//	accepted   switching    recorded
//	switching  ready        every node is steady, armed, and Slurm no longer waits for it
//	           failed       a node failed, the kernel is quarantined, Slurm does not wait for the boot,
//	                        slurmd does not register on the kernel, the job was suspended, or time is up
//	           returning    the job is gone (cancelled, requeued)
//	ready      returning    the job is gone or its epilog asks
//	returning  done         every node is on stock, kept or with another job
//	failed     (closed)     the job is off the nodes and they are on stock
//
// A job that goes on without some of its nodes lets them go: these are released
// as at a job's end, and no node ever comes in later.
//
// # A profiling run
//
//	state      goes to      when
//	requested  running      a job has it, and runs
//	           failed       no job came in time, or no node has anything
//	running    complete     every node delivered a whole result
//	           partial      some delivered; the others failed, are lost, or say that something is missing
//	           failed       none delivered
package plan
