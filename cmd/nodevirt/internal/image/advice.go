package image

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// advice returns what a user can do about a registry's failure, as the end of a message.
func (r registry) advice(err error) string {
	host := r.ref.Context().RegistryStr()
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		switch refused.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return ": log in with \"docker login " + host + "\" (or podman, or crane): its credentials are used"
		case http.StatusNotFound:
			return ": is the name right, and the tag there?"
		}
		return ""
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return ": --insecure goes without a trusted certificate"
	}
	return ""
}
