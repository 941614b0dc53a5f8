// SPDX-License-Identifier: Apache-2.0

// Package lab runs a small Slurm cluster of virtual machines on one host, for
// people to try the product on and for the suites to test it on.
//
// The idea: a lab is one set of Linux namespaces plus one folder. The
// namespaces (mount, network, process ids, host name, and a user namespace
// where the caller is not root) are the cluster's front-end: slurmctld,
// munged, the broker and the users' shells run in them with their default
// paths, because the lab's own folders are mounted over /etc/slurm, /var and
// so on. The nodes are QEMU machines started in the same namespaces and joined
// to the front-end by a bridge. Killing the first process of the process id
// namespace therefore ends everything at once, and the kernel takes the
// mounts and interfaces with it: nothing can be left behind on the host.
//
// There is no supervisor and no protocol to one. Every action, from whichever
// process, enters the namespaces with nsenter or talks to a machine's QMP
// socket in the lab's folder, and what has to be remembered between two
// actions is in state.json there.
//
// A node's kernel is booted directly by QEMU from the host ("the firmware's
// default"), so a reset always comes back to it, whatever was kexec'd since.
package lab
