// Package certs makes the certificate by which the API server recognizes the
// controller's webhooks, renews it in time, and writes its authority into the API
// server's configuration. All replicas share one Secret, and each may write it: no
// replica has to lead. The package leaves serving to its users.
package certs
