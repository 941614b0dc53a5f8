// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// honouredBy maps a parameter to the configuration symbols that read it: without any of them the kernel ignores the
// parameter silently. Parameters that every kernel reads, or whose symbols differ between versions, are not listed.
var honouredBy = map[string][]string{
	"nohz_full":             {"NO_HZ_FULL"},
	"isolcpus":              {"CPU_ISOLATION"},
	"rcu_nocbs":             {"RCU_NOCB_CPU"},
	"rcu_nocb_poll":         {"RCU_NOCB_CPU"},
	"nohz":                  {"NO_HZ_COMMON", "NO_HZ_IDLE", "NO_HZ_FULL"},
	"irqaffinity":           {"SMP"},
	"maxcpus":               {"SMP"},
	"nr_cpus":               {"SMP"},
	"threadirqs":            {"IRQ_FORCED_THREADING"},
	"preempt":               {"PREEMPT_DYNAMIC"},
	"psi":                   {"PSI"},
	"transparent_hugepage":  {"TRANSPARENT_HUGEPAGE"},
	"hugepages":             {"HUGETLBFS"},
	"hugepagesz":            {"HUGETLBFS"},
	"default_hugepagesz":    {"HUGETLBFS"},
	"numa":                  {"NUMA"},
	"numa_balancing":        {"NUMA_BALANCING"},
	"nmi_watchdog":          {"HARDLOCKUP_DETECTOR"},
	"intel_pstate":          {"X86_INTEL_PSTATE"},
	"amd_pstate":            {"X86_AMD_PSTATE"},
	"intel_idle.max_cstate": {"INTEL_IDLE"},
	"intel_iommu":           {"INTEL_IOMMU"},
	"amd_iommu":             {"AMD_IOMMU"},
	"apparmor":              {"SECURITY_APPARMOR"},
	"selinux":               {"SECURITY_SELINUX_BOOTPARAM"},
	"audit":                 {"AUDIT"},
	"zswap.enabled":         {"ZSWAP"},
	"ipv6.disable":          {"IPV6"},
}

// HonouredBy returns the symbols, without CONFIG_, of which a kernel needs one to honour an argument; nil if none is
// known.
func HonouredBy(argument string) []string {
	name, _, _ := strings.Cut(argument, "=")
	return honouredBy[plainParameter(name)]
}

// CheckHonoured rejects arguments that a kernel would ignore, all in one error. set reports whether the kernel's
// configuration has a symbol.
func CheckHonoured(arguments []string, set func(symbol string) bool) error {
	var wrong []error
	for _, argument := range arguments {
		needs := HonouredBy(argument)
		if len(needs) == 0 {
			continue
		}
		if !slices.ContainsFunc(needs, set) {
			wrong = append(wrong, fmt.Errorf("the kernel ignores %q: it was built without CONFIG_%s", argument, strings.Join(needs, " or CONFIG_")))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%w (a recipe's fragment can set that; kernels.md): %w", errors.Join(wrong...), ErrInvalid)
}
