package rpc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// audience is who may call a method. Administrators may call everything.
type audience int

const (
	// anyone: every local user, and whoever reaches the TCP port.
	anyone audience = iota + 1
	// agents: whoever reaches the TCP port, from a privileged port when the
	// server asks for that. No local users: a node is not posed as from a
	// login shell on the broker's host.
	agents
	// locals: every user on the broker's host.
	locals
	// slurm: Slurm's user.
	slurm
	// administrators: root, the broker's own user, and those configured.
	administrators
)

func (a audience) String() string {
	return map[audience]string{
		anyone: "anyone", agents: "node agents", locals: "users on the broker's host",
		slurm: "Slurm's user and administrators", administrators: "administrators",
	}[a]
}

// rule is what holds for a method.
type rule struct {
	may audience
	// limit ends a call that takes longer; 0 for streams that live on.
	limit time.Duration
}

const (
	shortly  = 15 * time.Second
	transfer = 30 * time.Minute
	lasting  = 0
)

// rules is the one table of who may call what, and for how long. A method
// that is missing here cannot be called.
var rules = map[string]rule{
	api.CatalogService_ListProfiles_FullMethodName:      {locals, shortly},
	api.CatalogService_GetProfile_FullMethodName:        {locals, shortly},
	api.CatalogService_CheckProfile_FullMethodName:      {locals, shortly},
	api.CatalogService_ApplyProfile_FullMethodName:      {administrators, shortly},
	api.CatalogService_ReleaseQuarantine_FullMethodName: {administrators, shortly},
	api.CatalogService_RetireProfile_FullMethodName:     {administrators, shortly},
	api.CatalogService_UploadArtifact_FullMethodName:    {administrators, transfer},
	api.CatalogService_FetchArtifact_FullMethodName:     {anyone, transfer},
	api.CatalogService_GetSnapshot_FullMethodName:       {anyone, shortly},

	api.AllocationService_EnsureKernel_FullMethodName: {slurm, lasting},
	api.AllocationService_ReleaseJob_FullMethodName:   {slurm, shortly},
	api.AllocationService_NoteReboot_FullMethodName:   {slurm, shortly},
	api.AllocationService_GetJob_FullMethodName:       {locals, shortly},
	api.AllocationService_ListJobs_FullMethodName:     {locals, shortly},

	api.NodeService_Connect_FullMethodName:   {agents, lasting},
	api.NodeService_ListNodes_FullMethodName: {locals, shortly},
	api.NodeService_GetNode_FullMethodName:   {locals, shortly},

	api.HealthService_GetHealth_FullMethodName: {locals, shortly},

	// Agents ask before their last word, to know that what they sent arrived.
	grpc_health_v1.Health_Check_FullMethodName: {anyone, shortly},
	grpc_health_v1.Health_List_FullMethodName:  {locals, shortly},
	grpc_health_v1.Health_Watch_FullMethodName: {locals, lasting},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {locals, transfer},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {locals, transfer},
}

// door decides who comes in.
type door struct {
	administrators []uint32
	slurmUsers     []uint32
	privileged     bool // agents must dial from a privileged port
}

// check returns kernelbroker.ErrDenied with who may and who the caller is.
func (d door) check(method string, caller Caller) error {
	if d.open(rules[method].may, caller) {
		return nil
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	may := rules[method].may
	switch {
	case may == 0:
		return fmt.Errorf("%s: nobody may call this: %w", name, kernelbroker.ErrDenied)
	case may == agents && !caller.Local:
		return fmt.Errorf("%s: agents have to dial from a port below %d, you came from %s: %w",
			name, firstOpenPort, caller, kernelbroker.ErrDenied)
	case !caller.Local:
		return fmt.Errorf("%s is for %s, through the local socket; you came over the network from %s: %w",
			name, may, caller, kernelbroker.ErrDenied)
	}
	return fmt.Errorf("%s is for %s; you are uid %d: %w", name, may, caller.UID, kernelbroker.ErrDenied)
}

func (d door) open(may audience, caller Caller) bool {
	if caller.Local && slices.Contains(d.administrators, caller.UID) {
		return may != 0
	}
	switch may {
	case anyone:
		return true
	case agents:
		return !caller.Local && (caller.PrivilegedPort || !d.privileged)
	case locals:
		return caller.Local
	case slurm:
		return caller.Local && slices.Contains(d.slurmUsers, caller.UID)
	}
	return false
}
