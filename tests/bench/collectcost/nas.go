// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// nasKernels are those of the NAS parallel benchmarks that the paper measures.
var nasKernels = []string{"cg", "lu", "ep", "mg"}

// nasJobs are NAS programs that somebody built: files such as cg.S or cg.S.x, in
// the folder bin of the benchmarks. Debian has no package of them.
func nasJobs(folder string) ([]Job, error) {
	jobs := make([]Job, 0, len(nasKernels))
	for _, kernel := range nasKernels {
		found, err := filepath.Glob(filepath.Join(folder, kernel+".[A-Z]*"))
		if err != nil {
			return nil, fmt.Errorf("NAS benchmarks: %w", err)
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("NAS benchmarks %q: %w %s.CLASS, and there are %d: make %[3]s CLASS=S there", folder, errNAS, kernel, len(found))
		}
		program, err := filepath.Abs(found[0])
		if err != nil {
			return nil, fmt.Errorf("NAS benchmarks: %w", err)
		}
		name := "nas-" + kernel
		jobs = append(jobs, Job{
			Name: name, What: "NAS " + filepath.Base(program) + ", one thread",
			Command: []string{"/bin/sh", "-c", name + " >said"}, Environment: []string{"OMP_NUM_THREADS=1"},
			// Not that of UNSUCCESSFUL.
			Proof: "said", Words: " SUCCESSFUL", Both: 4, programs: []string{name}, built: program,
		})
	}
	return jobs, nil
}

var errNAS = errors.New("wanted one program")

// jobs of a run: all that there are, or those that were asked for.
func (o Options) jobs() ([]Job, error) {
	all := Jobs()
	if o.NAS != "" {
		nas, err := nasJobs(o.NAS)
		if err != nil {
			return nil, err
		}
		all = append(all, nas...)
	}
	if len(o.Only) == 0 {
		return all, nil
	}
	found := make([]Job, 0, len(o.Only))
	for _, name := range o.Only {
		i := slices.IndexFunc(all, func(job Job) bool { return job.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("job %q: there is none of that name", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}
