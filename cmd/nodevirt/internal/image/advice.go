package image

import (
	"crypto/tls"
	"errors"
	"net/http"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// advice returns what a user can do about a registry's failure, as the end of a message.
func (r registry) advice(err error) string {
	host := r.ref.Context().RegistryStr()
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		switch refused.StatusCode {
		case http.StatusUnauthorized:
			return ": log in with \"docker login " + host + "\" (or podman, or crane): its credentials are used"
		case http.StatusForbidden: // a quota, an immutable tag, or a policy, too
			return ": the registry refuses this account, or what it does there: check the account's rights, the project's quota and its rules for tags; " +
				"\"docker login " + host + "\" (or podman, or crane) changes the account"
		case http.StatusNotFound:
			return ": is the name right, and the tag there?"
		}
		return ""
	}
	if strings.Contains(err.Error(), "no child with platform") {
		return ": its index has no image for this platform: name an image for linux/" + runtime.GOARCH + ", or add one to the index"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return ": --insecure goes without a trusted certificate"
	}
	return ""
}
