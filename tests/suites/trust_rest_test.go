// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// dial connects from within the lab's network, as its front-end's people do.
func (c *cluster) dial(address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go func() {
		// Its end shows at the near end, whatever it was.
		_, _ = c.Run(c.ctx, "root", lab.Streams{In: far, Out: far}, "/bin/busybox", "nc", host, port)
		_ = far.Close()
	}()
	return near, nil
}

// visitor is a client of slurmrestd: a user name and a token, which need not match.
type visitor struct{ user, token string }

// restAnswer is the evaluated part of an answer.
type restAnswer struct {
	Status int
	ID     int `json:"job_id"`
	Errors []struct{ Error, Description string }
}

func (a restAnswer) refused() bool { return a.Status != http.StatusOK || len(a.Errors) > 0 }

// names reports whether the answer's first error is of a field.
func (a restAnswer) names(field string) bool {
	return a.ID == 0 && len(a.Errors) > 0 && strings.Contains(a.Errors[0].Description, field)
}

// token returns slurmctld's token for the user that runs the command.
func (c *cluster) token(user string, more ...string) string {
	c.t.Helper()
	token, is := strings.CutPrefix(c.must(user, append([]string{"scontrol", "token"}, more...)...), "SLURM_JWT=")
	if !is {
		c.t.Fatalf("scontrol token printed %q", token)
	}
	return token
}

// ask sends one request to slurmrestd.
func (c *cluster) ask(v visitor, path string, body any) restAnswer {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, switchLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+lab.RESTAddress+"/slurm/v0.0.38/"+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-SLURM-USER-NAME", v.user)
	if v.token != "" {
		request.Header.Set("X-SLURM-USER-TOKEN", v.token)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return c.dial(lab.RESTAddress) },
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		c.t.Fatalf("slurmrestd: %v", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatalf("slurmrestd: %v", err)
	}
	answer := restAnswer{Status: response.StatusCode}
	// An unauthenticated client gets a text page.
	if err := json.Unmarshal(content, &answer); err != nil && answer.Status == http.StatusOK {
		c.t.Fatalf("slurmrestd: %v: %s", err, content)
	}
	return answer
}

// submit has slurmrestd submit the recording job with more of the interface's
// fields.
func (c *cluster) submit(v visitor, fields map[string]any) restAnswer {
	c.t.Helper()
	home := "/home/bob"
	job := map[string]any{
		"name": "rest", "nodes": []int{1, 1}, "current_working_directory": home, "standard_output": home + "/rest-%j.out",
		"environment": map[string]string{"PATH": "/usr/bin:/bin", "HOME": home},
	}
	for name, value := range fields {
		job[name] = value
	}
	return c.ask(v, "job/submit", map[string]any{"script": "#!/bin/bash\nexec " + home + "/record.sh\n", "job": job})
}

// forged is a token with a real one's content, signed by another key.
func forged(user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"exp":%d,"iat":%d,"sun":%q}`, time.Now().Add(time.Hour).Unix(), time.Now().Unix(), user)
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(claims))
	sum := hmac.New(sha256.New, []byte("a key that is not slurmctld's"))
	sum.Write([]byte(text))
	return text + "." + encode(sum.Sum(nil))
}

// Slurm's REST daemon, with its own user, authenticates by tokens only. It has no field for a SPANK plugin's data, and
// the job's environment does not replace it: such a job is plain.
func notTheirsByREST(c *cluster) {
	if slurmroot.Wanted() != slurmroot.Default {
		c.t.Skip("this speaks v0.0.38 of slurmrestd's interface, which 24.11 and later no longer have")
	}
	bob := visitor{"bob", c.token("bob")}
	environment := map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/bob"}
	for _, name := range profileVariables {
		environment[name] = "mitgcm"
	}
	c.costs(0, func() {
		answer := c.submit(bob, map[string]any{"environment": environment})
		if answer.ID == 0 {
			c.t.Fatalf("slurmctld did not accept the job: the test is void: %+v", answer)
		}
		id := strconv.Itoa(answer.ID)
		if job := c.waitJob(id, "COMPLETED"); !strings.HasPrefix(job["UserId"], "bob(") {
			c.t.Errorf("job %s is %s's", id, job["UserId"])
		}
		c.ranOn("bob", id, "stock", 1)
		for _, field := range []string{"kernel_profile", "kernel-profile", "spank_environment", "spank_job_env", "admin_comment", "reboot"} {
			if answer := c.submit(bob, map[string]any{field: "mitgcm", "hold": true}); !answer.names(field) {
				c.t.Errorf("field %s: %+v", field, answer)
			}
		}
		// Accounts are Slurm's to refuse, as by sbatch.
		if answer := c.submit(bob, map[string]any{"account": "climate", "hold": true}); answer.ID != 0 || len(answer.Errors) == 0 {
			c.t.Errorf("an account that is not bob's: %+v", answer)
		}
	})
	strangersByREST(c, bob)
	changesByREST(c, bob)
}

// strangersByREST: requests without a valid own token are refused.
func strangersByREST(c *cluster, bob visitor) {
	c.refused("bob", nil, "scontrol", "token", "username=alice")
	if answer := c.submit(bob, map[string]any{"hold": true}); answer.ID == 0 {
		c.t.Fatalf("slurmctld accepts no held job: the test is void: %+v", answer)
	}
	short := visitor{"bob", c.token("bob", "lifespan=1")}
	c.wait(settleLimit, "a token of one second to end", func() bool { return c.submit(short, map[string]any{"hold": true}).refused() })
	for what, v := range map[string]visitor{
		"no token": {"alice", ""}, "no name and no token": {}, "alice's name on bob's token": {"alice", bob.token},
		"a token by another key": {"alice", forged("alice")}, "root's, by another key": {"root", forged("root")},
	} {
		if answer := c.submit(v, map[string]any{"hold": true}); answer.ID != 0 || !answer.refused() {
			c.t.Errorf("%s: %+v", what, answer)
		}
	}
	c.must("bob", "scancel", "--user=bob")
	c.noJobs()
}

// changesByREST: a job's plugin data cannot be written later, neither by a field nor by a SPANK variable, with a token
// or by scontrol.
func changesByREST(c *cluster, bob visitor) {
	held := c.sbatch("bob", "--hold", "-N1")
	before := c.job(held)
	path := "job/" + held
	for _, field := range []string{"kernel_profile", "spank_environment", "spank_job_env", "admin_comment", "reboot"} {
		if answer := c.ask(bob, path, map[string]any{field: "mitgcm"}); !answer.names(field) {
			c.t.Errorf("field %s of a job that is there: %+v", field, answer)
		}
	}
	for _, name := range profileVariables {
		c.refused("bob", []string{"Update of this parameter is not supported: " + name + "=mitgcm"}, "scontrol", "update", "jobid="+held, name+"=mitgcm")
	}
	if answer := c.ask(bob, path, map[string]any{"comment": "his-own"}); answer.refused() || c.job(held)["Comment"] != "his-own" {
		c.t.Errorf("slurmctld accepted no change at all: the test is void: %+v, %s", answer, c.job(held)["Comment"])
	}
	if after := c.job(held); after["AdminComment"] != before["AdminComment"] || after["Reboot"] != before["Reboot"] {
		c.t.Errorf("changed to %v", after)
	}
	c.must("bob", "scancel", held)
}
