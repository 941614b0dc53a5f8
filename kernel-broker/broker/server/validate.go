// SPDX-License-Identifier: Apache-2.0

package server

import (
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
	case *api.GetProfileRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.CheckProfileRequest:
		_, err := kb.ParseRef(r.GetProfile())
		return err
	case *api.ApplyProfileRequest:
		if r.GetProfile() == nil {
			return fmt.Errorf("request has no profile: %w", kb.ErrInvalid)
		}
		return kb.ValidateProfileName(r.GetProfile().GetName())
	case *api.ReleaseQuarantineRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.RetireProfileRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.PromoteVersionRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.QuarantineVersionRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.SignVersionRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.GetArtifactRequest:
		return kb.ValidateDigest(r.GetDigest())
	case *api.FetchArtifactRequest:
		return kb.ValidateDigest(r.GetDigest())
	case *api.EnsureKernelRequest:
		return validateEnsure(r)
	case *api.ReleaseJobRequest:
		return validateJob(r.GetJobId())
	case *api.NoteRebootRequest:
		return validateNodes(r.GetNodes())
	case *api.GetJobRequest:
		return validateJob(r.GetJobId())
	case *api.ListJobsRequest:
		if r.GetLimit() > maxJobs {
			return fmt.Errorf("limit %d, at most %d jobs can be listed: %w", r.GetLimit(), maxJobs, kb.ErrInvalid)
		}
	case *api.GetNodeRequest:
		return kb.ValidateNodeName(r.GetName())
	case *api.CreateNodeTokenRequest:
		return kb.ValidateNodeName(r.GetNode())
	case *api.RevokeNodeRequest:
		return kb.ValidateNodeName(r.GetNode())
	case *api.EnrolRequest:
		return errors.Join(kb.ValidateNodeName(r.GetNode()), mtls.ValidateSecret(r.GetSecret()))
	case *api.ListCertificatesRequest:
		if r.GetNode() != "" {
			return kb.ValidateNodeName(r.GetNode())
		}
	case *api.ConnectRequest:
		return validateConnect(r)
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
	case *api.DeliverRunRequest:
		return kb.ValidateNodeName(r.GetNode())
	}
	return nil
}

func validateEnsure(r *api.EnsureKernelRequest) error {
	if err := validateJob(r.GetJobId()); err != nil {
		return err
	}
	if _, err := kb.ParseRef(r.GetProfile()); err != nil {
		return err
	}
	return validateNodes(r.GetNodes())
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

func validateConnect(r *api.ConnectRequest) error {
	if r.GetMessage() == nil {
		return fmt.Errorf("agent's message is empty: %w", kb.ErrInvalid)
	}
	if hello := r.GetHello(); hello != nil {
		return kb.ValidateNodeName(hello.GetNode())
	}
	return nil
}
