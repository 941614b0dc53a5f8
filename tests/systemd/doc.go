// SPDX-License-Identifier: Apache-2.0

// Package systemd tests the product's systemd units on two virtual machines with Debian's own systemd, munge, slurmdbd,
// slurmctld and slurmd. The product is installed by make install and set up by docs/ops/install.md. ctl1 has the broker,
// n1 the agent.
//
// Only systemd and the kernel enforce a unit's lines. So the units run here unchanged, and their effect is read from
// /proc and tried from inside: a probe with the unit's lines, or in its namespaces, attempts what the service must not
// be able to do. tests/rules checks the units' text and tests/suites the product's behaviour; neither has a systemd.
//
// Where Ansible installs the product instead, the machines are bare: two of TestSite, and six of TestWholeSite, which takes
// hours and is run by itself. make site-up keeps these six to try things on; TestWholeSite goes on with them, where KB_SITE
// names their file:
//
//	KB_SITE=$PWD/build/site go test -tags lab ./tests/systemd -run '^TestWholeSite$/^(a_job_on_two_nodes|a_profiling_run)$' -v -timeout 0
//
// mmdebstrap builds the machines' root from Debian's registry once, into the cache; it needs `make deps-long`, root or
// sub-ids, and QEMU.
package systemd
