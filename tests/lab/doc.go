// SPDX-License-Identifier: Apache-2.0

// Package lab runs a small Slurm cluster of virtual machines on one host, to try the product and for the suites to test
// it.
//
// A lab is one set of Linux namespaces plus one folder. The namespaces (mount, network, process ids, host name, and a
// user namespace if the caller is not root) are the cluster's front-end: slurmctld, munged, the broker and the users'
// shells run in them with their default paths, because the lab's own folders are mounted over /etc/slurm, /var and so
// on. The nodes are QEMU machines started in the same namespaces and joined to the front-end by a bridge. Killing the
// first process of the pid namespace ends everything at once, and the kernel removes the mounts and interfaces: nothing
// is left behind on the host.
//
// There is no supervisor. Every action, from any process, enters the namespaces with nsenter or uses a machine's QMP
// socket in the lab's folder; state between two actions is in state.json there.
//
// QEMU boots a node's kernel directly from the host ("the firmware's default"), so a reset always returns to it,
// whatever was booted by kexec since.
package lab
