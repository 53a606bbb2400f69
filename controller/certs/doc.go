// Package certs makes the certificate by which the API server knows the
// controller's webhooks, renews it in time, and tells the API server which
// authority to trust. All replicas share one Secret; nobody needs to lead for
// that, since what one of them writes is good for all. Serving is left to others.
package certs
