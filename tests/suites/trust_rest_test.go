//go:build lab

package suites

import (
	"encoding/json"
	"strconv"
	"strings"
)

// restScript has slurmrestd answer one request, as its user's own process: what
// slurmctld hears is the same as from a daemon that knows users by tokens.
const restScript = `{ printf 'POST /slurm/v0.0.38/job/submit HTTP/1.1\r\nHost: ctl\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' "${#1}"
	printf '%s' "$1"; } | /usr/sbin/slurmrestd -a rest_auth/local`

// restAnswer is what of it is looked at.
type restAnswer struct {
	ID     int `json:"job_id"`
	Errors []struct{ Error, Description string }
}

// rest submits the recording job with more of the interface's fields.
func (c *cluster) rest(user string, fields map[string]any) restAnswer {
	c.t.Helper()
	home := "/home/" + user
	job := map[string]any{
		"name": "rest", "nodes": []int{1, 1}, "current_working_directory": home, "standard_output": home + "/rest-%j.out",
		"environment": map[string]string{"PATH": "/usr/bin:/bin", "HOME": home},
	}
	for name, value := range fields {
		job[name] = value
	}
	request, err := json.Marshal(map[string]any{"script": "#!/bin/bash\nexec " + home + "/record.sh\n", "job": job})
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.try(user, "sh", "-c", restScript, "sh", string(request))
	// The headers come before or behind the body, as it likes.
	begin, end := strings.IndexByte(r.Stdout, '{'), strings.LastIndexByte(r.Stdout, '}')
	var answer restAnswer
	if begin < 0 || end < begin || json.Unmarshal([]byte(r.Stdout[begin:end+1]), &answer) != nil {
		c.t.Fatalf("slurmrestd: exit %d: %s%s", r.Exit, r.Stdout, r.Stderr)
	}
	return answer
}

// Slurm's REST interface has no field for what a SPANK plugin hands over, and
// the job's environment is not that: whatever is in it, the job is plain.
func notTheirsByREST(c *cluster) {
	environment := map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/bob"}
	for _, name := range profileVariables {
		environment[name] = "mitgcm"
	}
	c.costs(0, func() {
		answer := c.rest("bob", map[string]any{"environment": environment})
		if answer.ID == 0 {
			c.t.Fatalf("slurmctld did not take the job, so that nothing is shown: %+v", answer)
		}
		id := strconv.Itoa(answer.ID)
		c.waitJob(id, "COMPLETED")
		c.ranOn("bob", id, "stock", 1)
		for _, field := range []string{"kernel_profile", "kernel-profile", "spank_environment", "spank_job_env", "admin_comment", "reboot"} {
			answer := c.rest("bob", map[string]any{field: "mitgcm", "hold": true})
			if answer.ID != 0 || len(answer.Errors) == 0 || !strings.Contains(answer.Errors[0].Description, field) {
				c.t.Errorf("field %s: %+v", field, answer)
			}
		}
		// Accounts are Slurm's to refuse, as by sbatch.
		if answer := c.rest("bob", map[string]any{"account": "climate", "hold": true}); answer.ID != 0 || len(answer.Errors) == 0 {
			c.t.Errorf("an account that is not bob's: %+v", answer)
		}
		// A job's own SPANK variables cannot be written later.
		held := c.sbatch("bob", "--hold", "-N1")
		for _, name := range profileVariables {
			c.refused("bob", nil, "scontrol", "update", "jobid="+held, name+"=mitgcm")
		}
		c.must("bob", "scancel", held)
	})
}
