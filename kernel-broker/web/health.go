// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// healthView is the broker with what it depends on.
type healthView struct {
	Version    string
	Healthy    bool
	Components []component
}

// component is one of them; State is healthy, warning or unhealthy.
type component struct{ Name, State, Detail, Warning string }

func (s *Server) health(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.health.GetHealth, &api.GetHealthRequest{})
	if err != nil {
		return page{}, err
	}
	v := healthView{Version: response.GetVersion(), Healthy: response.GetHealthy()}
	for _, c := range response.GetComponents() {
		state := "healthy"
		switch {
		case !c.GetHealthy():
			state = "unhealthy"
		case c.GetWarning() != "":
			state = "warning"
		}
		v.Components = append(v.Components, component{c.GetName(), state, c.GetDetail(), c.GetWarning()})
	}
	return page{Title: "Health", Here: "/health", Template: "health", Data: v}, nil
}
