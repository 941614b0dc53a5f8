// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) healthCommand() *cobra.Command {
	return a.command("health", "Show the state of the broker and its dependencies", cobra.NoArgs, a.health)
}

func (a *app) health(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewHealthServiceClient, api.HealthServiceClient.GetHealth, &api.GetHealthRequest{})
	if err != nil {
		return err
	}
	err = a.show(response, func(p *page) {
		p.head("COMPONENT", "STATE", "DETAIL")
		p.row("broker", either(response.GetHealthy(), "healthy", "UNHEALTHY"), response.GetVersion())
		for _, c := range response.GetComponents() {
			state, detail := either(c.GetHealthy(), "healthy", "UNHEALTHY"), c.GetDetail()
			if c.GetWarning() != "" {
				state, detail = either(c.GetHealthy(), "WARNING", state), detail+"; "+c.GetWarning()
			}
			p.row(c.GetName(), state, detail)
		}
	})
	if err == nil && !response.GetHealthy() {
		err = errUnhealthy
	}
	return err
}

func (a *app) versionCommand() *cobra.Command {
	return a.command("version", "Show the versions of this program and of the broker", cobra.NoArgs, a.version)
}

func (a *app) version(ctx context.Context, _ []string) error {
	versions := struct {
		Version string `json:"version"`
		Broker  string `json:"broker,omitempty"`
	}{Version: a.Version}
	response, err := call(ctx, a, api.NewHealthServiceClient, api.HealthServiceClient.GetHealth, &api.GetHealthRequest{})
	if err != nil {
		_, why := a.explain(err)
		a.say("%s", why)
	}
	versions.Broker = response.GetVersion()
	return a.showValue(versions, func(p *page) {
		p.row("kernelctl", versions.Version)
		p.row("kernel-broker", versions.Broker)
	})
}

// manCommand writes the man pages, for the build.
func (a *app) manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "man DIR", Short: "Write the man pages", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: a.run(func(_ context.Context, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Manual: "Kernel Broker", Source: "Kernel Broker " + a.Version}
			return doc.GenManTree(root, header, args[0])
		})}
}
