// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
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
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.CheckProfileRequest:
		_, err := kernelbroker.ParseRef(r.GetProfile())
		return err
	case *api.ApplyProfileRequest:
		if r.GetProfile() == nil {
			return fmt.Errorf("request has no profile: %w", kernelbroker.ErrInvalid)
		}
		return kernelbroker.ValidateProfileName(r.GetProfile().GetName())
	case *api.ReleaseQuarantineRequest:
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.RetireProfileRequest:
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.PromoteVersionRequest:
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.QuarantineVersionRequest:
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.SignVersionRequest:
		return kernelbroker.ValidateProfileName(r.GetName())
	case *api.GetArtifactRequest:
		return kernelbroker.ValidateDigest(r.GetDigest())
	case *api.FetchArtifactRequest:
		return kernelbroker.ValidateDigest(r.GetDigest())
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
			return fmt.Errorf("limit %d, at most %d jobs can be listed: %w", r.GetLimit(), maxJobs, kernelbroker.ErrInvalid)
		}
	case *api.GetNodeRequest:
		return kernelbroker.ValidateNodeName(r.GetName())
	case *api.CreateNodeTokenRequest:
		return kernelbroker.ValidateNodeName(r.GetNode())
	case *api.RevokeNodeRequest:
		return kernelbroker.ValidateNodeName(r.GetNode())
	case *api.EnrolRequest:
		return errors.Join(kernelbroker.ValidateNodeName(r.GetNode()), mtls.ValidateSecret(r.GetSecret()))
	case *api.ListCertificatesRequest:
		if r.GetNode() != "" {
			return kernelbroker.ValidateNodeName(r.GetNode())
		}
	case *api.ConnectRequest:
		return validateConnect(r)
	case *api.RequestRunRequest:
		if r.GetRequestId() != "" {
			return kernelbroker.ValidateRequestID(r.GetRequestId())
		}
	case *api.UploadRunFileRequest:
		if f := r.GetFile(); f != nil { // in the first message
			return errors.Join(kernelbroker.ValidateNodeName(r.GetNode()), kernelbroker.ValidateRunFile(f.GetName(), f.GetDigest()))
		}
	case *api.GetRunFileRequest:
		return errors.Join(kernelbroker.ValidateNodeName(r.GetNode()), kernelbroker.ValidateDigest(r.GetDigest()))
	case *api.DeliverRunRequest:
		return kernelbroker.ValidateNodeName(r.GetNode())
	}
	return nil
}

func validateEnsure(r *api.EnsureKernelRequest) error {
	if err := validateJob(r.GetJobId()); err != nil {
		return err
	}
	if _, err := kernelbroker.ParseRef(r.GetProfile()); err != nil {
		return err
	}
	return validateNodes(r.GetNodes())
}

func validateJob(id uint32) error {
	if id == 0 {
		return fmt.Errorf("job id is 0: %w", kernelbroker.ErrInvalid)
	}
	return nil
}

func validateNodes(nodes []string) error {
	if len(nodes) == 0 || len(nodes) > maxNodes {
		return fmt.Errorf("%d nodes, 1 to %d are allowed: %w", len(nodes), maxNodes, kernelbroker.ErrInvalid)
	}
	seen := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		if err := kernelbroker.ValidateNodeName(node); err != nil {
			return err
		}
		if seen[node] {
			return fmt.Errorf("node %q is named twice: %w", node, kernelbroker.ErrInvalid)
		}
		seen[node] = true
	}
	return nil
}

func validateConnect(r *api.ConnectRequest) error {
	if r.GetMessage() == nil {
		return fmt.Errorf("agent's message is empty: %w", kernelbroker.ErrInvalid)
	}
	if hello := r.GetHello(); hello != nil {
		return kernelbroker.ValidateNodeName(hello.GetNode())
	}
	return nil
}
