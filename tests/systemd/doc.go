// SPDX-License-Identifier: Apache-2.0

// Package systemd holds the suite of the product's systemd units: two virtual
// machines with Debian's own systemd, munge, slurmdbd, slurmctld and slurmd, on
// which the product is installed by make install and set up as docs/ops/install.md
// says. ctl1 has the broker, n1 the agent.
//
// The idea: a unit's lines are promises about a process, and only systemd and
// the kernel keep them. So the units run here unchanged, and what they promise
// is read from /proc and tried from inside: a probe with the lines of the unit,
// or in its namespaces, does what the service must not be able to. tests/rules
// checks the units' text and tests/suites the product's behaviour; neither has
// a systemd.
//
// The machines' root comes from Debian's registry by mmdebstrap, once, into the
// cache; it needs `make deps-long`, root or sub-ids, and QEMU.
package systemd
