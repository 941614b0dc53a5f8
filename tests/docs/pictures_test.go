// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"archive/tar"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var update = flag.Bool("update", false, "draw the pictures of docs/pictures anew")

// The pictures of the README are drawn from measured data in the repository. After a new measurement:
// go test ./tests/docs -run Pictures -update
func TestPictures(t *testing.T) {
	for name, text := range map[string]string{"switch.svg": drawSwitch(t), "gain.svg": drawGain(t)} {
		path := filepath.Join(root(t), "docs/pictures", name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if drawn, err := os.ReadFile(path); err != nil || string(drawn) != text {
			t.Errorf("%s is not drawn from the present data (-update draws it): %v", name, err)
		}
	}
}

// The size of pictures: width, where bars begin, the room for them, a row's height.
const (
	width, left, room, row = 760, 240, 400, 26
)

// canvas is a picture that grows downwards.
type canvas struct {
	body strings.Builder
	y    int
}

func (c *canvas) text(x int, class, text string) {
	fmt.Fprintf(&c.body, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, c.y+16, class, text)
}

// bar from begin to end, as shares of the room.
func (c *canvas) bar(class string, begin, end float64) (right int) {
	right = left + int(end*room)
	x := left + int(begin*room)
	fmt.Fprintf(&c.body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"16\" rx=\"2\" class=\"%s\"/>\n", x, c.y+4, max(right-x, 2), class)
	return max(right, x+2)
}

func (c *canvas) picture(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">
<style>
text{font:13px system-ui,sans-serif;fill:#24292f}
.head{font-weight:600}.small{font-size:12px;fill:#57606a}.ours{fill:#1f6fb2}.plain{fill:#9aa4ae}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9aa4ae}.ours{fill:#58a6e8}.plain{fill:#606a74}}
</style>
%s</svg>
`, width, c.y+10, width, c.y+10, title, c.body.String())
}

// drawSwitch draws the phases of a switch, one after another, and a reset beside them.
func drawSwitch(t *testing.T) string {
	t.Helper()
	const file = "docs/benchmarks/bench-switch-stock.json"
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	type median struct {
		Name   string
		Median float64
	}
	var data struct {
		Runs             int
		Kernel           string
		Phases, Measures []median
	}
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	seconds := map[string]float64{}
	for _, m := range append(data.Phases, data.Measures...) {
		seconds[m.Name] = m.Median
	}
	scale := seconds["reset"]
	if scale <= 0 {
		t.Fatalf("%s has no reset", file)
	}
	c := &canvas{y: 6}
	c.text(10, "head", "From sbatch to a job on its own kernel, in seconds")
	c.y += row
	at := 0.0
	for _, step := range []struct {
		label  string
		phases []string
	}{
		{"Slurm allocates the node", []string{"accepted", "switching"}},
		{"the kernel is checked and loaded", []string{"fetching", "loaded"}},
		{"slurmd stops, disks are synced", []string{"kexec"}},
		{"kexec", []string{"started"}},
		{"the kernel boots and is proven", []string{"booted", "attested"}},
		{"slurmd registers", []string{"registered"}},
		{"the job starts", []string{"ready", "running"}},
	} {
		long := 0.0
		for _, name := range step.phases {
			s, is := seconds[name]
			if !is {
				t.Fatalf("%s has no phase %s", file, name)
			}
			long += s
		}
		c.text(10, "label", step.label)
		right := c.bar("ours", at/scale, (at+long)/scale)
		at += long
		c.text(right+6, "small", fmt.Sprintf("%.2f", long))
		c.y += row
	}
	c.text(10, "label", "for comparison: a reset")
	right := c.bar("plain", 0, 1)
	c.text(right+6, "small", fmt.Sprintf("%.1f, no firmware", scale))
	c.y += row
	c.text(10, "small", fmt.Sprintf("Medians of %d switches, node on Debian's %s, software emulation: %s", data.Runs, strings.TrimPrefix(data.Kernel, "stock "), file))
	c.y += row
	return c.picture("A switch, phase by phase")
}

// drawGain draws what a record of MITgcm's replay takes on each kernel.
func drawGain(t *testing.T) string {
	t.Helper()
	const file = "catalog/training/mitgcm.tar.zst"
	var report struct {
		Facts   struct{ Stock, Slim, Subject string }
		Figures struct {
			Measured []struct {
				Run struct {
					Workload string
					Seed     int
				}
				Metric, Kernel string
				Summary        struct{ Median float64 }
			}
		}
	}
	if err := json.Unmarshal(fromArchive(t, file, "report/report.json"), &report); err != nil {
		t.Fatal(err)
	}
	facts := report.Facts
	found, tested := map[string]float64{}, 0
	for _, m := range report.Figures.Measured {
		if m.Kernel == facts.Stock {
			tested = m.Run.Seed // Debian's kernel is measured by the test's run alone
		}
	}
	for _, m := range report.Figures.Measured {
		if m.Run.Seed == tested {
			found[m.Kernel+" "+m.Metric] = m.Summary.Median
		}
	}
	of := func(kernel string) (user, inKernel float64) {
		user, inKernel = found[kernel+" user_weighed_instructions"], found[kernel+" kernel_weighed_instructions"]
		if user <= 0 || inKernel <= 0 {
			t.Fatalf("%s says nothing of %s", file, kernel)
		}
		return user, inKernel
	}
	user, inKernel := of(facts.Stock)
	whole := user + inKernel
	c := &canvas{y: 6}
	c.text(10, "head", "Instructions for one record that MITgcm's replay writes")
	c.y += row
	for _, k := range []struct{ label, kernel string }{
		{"Debian's kernel", facts.Stock}, {"a slim kernel", facts.Slim}, {"MITgcm's own kernel", facts.Subject},
	} {
		u, i := of(k.kernel)
		c.text(10, "label", k.label)
		c.bar("plain", 0, u/whole)
		right := c.bar("ours", u/whole, (u+i)/whole)
		change := ""
		if k.kernel != facts.Stock {
			change = fmt.Sprintf("kernel %+.0f %%", 100*(i/inKernel-1))
		}
		c.text(right+6, "small", change)
		c.y += row
	}
	u, i := of(facts.Subject)
	c.text(10, "small", fmt.Sprintf("Grey: the program. Blue: the kernel. The whole replay: %.0f %% fewer. A job that computes more gains less.", 100*(1-(u+i)/whole)))
	c.y += row - 6
	c.text(10, "small", "Counted by an emulator, exactly, strings weighed: the report in "+file)
	c.y += row
	return c.picture("The gain of a kernel made for MITgcm")
}

// fromArchive reads a file of a tar that zstd has packed.
func fromArchive(t *testing.T, archive, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(root(t), archive))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: no %s: %v", archive, name, err)
		}
		if h.Name != name {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}
