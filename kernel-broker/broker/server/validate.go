// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

const (
	// maxNodes of one request, as many as Slurm has in a cluster.
	maxNodes = 65536
	maxJobs  = 10000
)

// validate refuses what no domain object can be made of, before any service
// sees it. Requests that are not here have nothing to check.
func validate(request any) error {
	switch r := request.(type) {
	case *api.GetProfileRequest, *api.ReleaseQuarantineRequest, *api.RetireProfileRequest, *api.PromoteVersionRequest,
		*api.QuarantineVersionRequest, *api.SignVersionRequest:
		return kb.ValidateProfileName(r.(interface{ GetName() string }).GetName())
	case *api.GetArtifactRequest, *api.FetchArtifactRequest:
		return kb.ValidateDigest(r.(interface{ GetDigest() string }).GetDigest())
	case *api.ReleaseJobRequest, *api.GetJobRequest, *api.BeginRunRequest:
		return validateJob(r.(interface{ GetJobId() uint32 }).GetJobId())
	case *api.CreateNodeTokenRequest, *api.RevokeNodeRequest, *api.DeliverRunRequest:
		return kb.ValidateNodeName(r.(interface{ GetNode() string }).GetNode())
	case *api.CheckProfileRequest:
		_, err := kb.ParseRef(r.GetProfile())
		return err
	case *api.ApplyProfileRequest:
		if r.GetProfile() == nil {
			return fmt.Errorf("request has no profile: %w", kb.ErrInvalid)
		}
		return kb.ValidateProfileName(r.GetProfile().GetName())
	case *api.EnsureKernelRequest:
		_, err := kb.ParseRef(r.GetProfile())
		return cmp.Or(validateJob(r.GetJobId()), err, validateNodes(r.GetNodes()))
	case *api.NoteRebootRequest:
		return validateNodes(r.GetNodes())
	case *api.ListJobsRequest:
		if r.GetLimit() > maxJobs {
			return fmt.Errorf("limit %d, at most %d jobs can be listed: %w", r.GetLimit(), maxJobs, kb.ErrInvalid)
		}
	case *api.GetNodeRequest:
		return kb.ValidateNodeName(r.GetName())
	case *api.EnrolRequest:
		return errors.Join(kb.ValidateNodeName(r.GetNode()), mtls.ValidateSecret(r.GetSecret()))
	case *api.ListCertificatesRequest:
		if r.GetNode() != "" {
			return kb.ValidateNodeName(r.GetNode())
		}
	case *api.ConnectRequest:
		if r.GetMessage() == nil {
			return fmt.Errorf("agent's message is empty: %w", kb.ErrInvalid)
		}
		if r.GetHello() != nil {
			return kb.ValidateNodeName(r.GetHello().GetNode())
		}
	case *api.RequestRunRequest:
		if r.GetRequestId() != "" {
			return kb.ValidateRequestID(r.GetRequestId())
		}
	case *api.UploadRunFileRequest:
		if f := r.GetFile(); f != nil { // in the first message
			return errors.Join(kb.ValidateNodeName(r.GetNode()), kb.ValidateRunFile(f.GetName(), f.GetDigest()))
		}
	case *api.GetRunFileRequest:
		return errors.Join(kb.ValidateNodeName(r.GetNode()), kb.ValidateDigest(r.GetDigest()))
	}
	return nil
}

func validateJob(id uint32) error {
	if id == 0 {
		return fmt.Errorf("job id is 0: %w", kb.ErrInvalid)
	}
	return nil
}

func validateNodes(nodes []string) error {
	if len(nodes) == 0 || len(nodes) > maxNodes {
		return fmt.Errorf("%d nodes, 1 to %d are allowed: %w", len(nodes), maxNodes, kb.ErrInvalid)
	}
	seen := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		if err := kb.ValidateNodeName(node); err != nil {
			return err
		}
		if seen[node] {
			return fmt.Errorf("node %q is named twice: %w", node, kb.ErrInvalid)
		}
		seen[node] = true
	}
	return nil
}
