// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// unwanted applets of busybox have another name in the image or none: shells other than ash confuse, and dpkg has no
// database here.
var unwanted = map[string]bool{"busybox": true, "dpkg": true, "dpkg-deb": true, "rpm": true, "rpm2cpio": true}

// systemApplets live in /usr/sbin; the rest in /usr/bin.
var systemApplets = map[string]bool{"init": true, "reboot": true, "poweroff": true, "halt": true, "ip": true}

// busyboxEntries adds busybox and a link for each applet that no real program
// of the list provides.
func busyboxEntries(have []entry) ([]entry, error) {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox: %w", err)
	}
	taken := map[string]bool{}
	for _, e := range have {
		taken[e.target[strings.LastIndex(e.target, "/")+1:]] = e.source != ""
	}
	list := []entry{{target: "/usr/bin/busybox", source: busybox, mode: 0o755}}
	for _, applet := range strings.Fields(string(out)) {
		if unwanted[applet] || taken[applet] {
			continue
		}
		dir := "/usr/bin/"
		if systemApplets[applet] {
			dir = "/usr/sbin/"
		}
		list = append(list, entry{target: dir + applet, link: "/usr/bin/busybox"})
	}
	return list, nil
}
