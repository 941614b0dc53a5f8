// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"fmt"
	"strings"
)

// honouredBy has the symbols of the kernel's configuration that read a parameter:
// without one of them the kernel takes the parameter without a word and does
// nothing. Parameters that every kernel reads are not in it, and neither are
// those whose symbols differ from version to version.
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

// HonouredBy returns symbols of a configuration, without CONFIG_, of which a
// kernel needs one to heed an argument; nil where none is known to be needed.
func HonouredBy(argument string) []string {
	name, _, _ := strings.Cut(argument, "=")
	return honouredBy[plainParameter(name)]
}

// CheckHonoured refuses arguments that a kernel would ignore, all at once. set
// reports whether its configuration has a symbol.
func CheckHonoured(arguments []string, set func(symbol string) bool) error {
	var wrong []error
	for _, argument := range arguments {
		needs := HonouredBy(argument)
		if len(needs) == 0 {
			continue
		}
		has := false
		for _, symbol := range needs {
			has = has || set(symbol)
		}
		if !has {
			wrong = append(wrong, fmt.Errorf("the kernel ignores %q: it was built without CONFIG_%s", argument, strings.Join(needs, " or CONFIG_")))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%w (a recipe's fragment can set that; kernels.md): %w", errors.Join(wrong...), ErrInvalid)
}
