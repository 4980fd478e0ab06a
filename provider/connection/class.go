// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Class is what kind of trouble an error is.
type Class int

// Classes of errors.
const (
	Other       Class = iota
	NotFound          // Nomad says that there is no such thing
	Denied            // the token may not do that
	BadToken          // the token is not known or has expired
	Unreachable       // nobody answered
	Untrusted         // the certificate was refused, by either side
	Foreign           // what answered is not Nomad
	Conflict          // the job is not as it was last seen
	Invalid           // Nomad refuses the job itself
	Setting           // a setting of the provider cannot be used
)

// Classify tells what kind of trouble an error is, by its type and status, and by its text
// only where Nomad has no other way to say it.
func Classify(err error) Class {
	var foreign *ForeignError
	var setting *SettingError
	var answer api.UnexpectedResponseError
	switch {
	case err == nil:
		return Other
	case errors.As(err, &foreign):
		return Foreign
	case errors.As(err, &setting):
		return Setting
	case untrusted(err):
		return Untrusted
	case errors.As(err, &answer):
		return ofAnswer(answer)
	case unreachable(err):
		return Unreachable
	}
	return Other
}

func ofAnswer(answer api.UnexpectedResponseError) Class {
	text := answer.Body()
	switch {
	case strings.Contains(text, api.RegisterEnforceIndexErrPrefix):
		return Conflict
	case answer.StatusCode() == http.StatusNotFound:
		return NotFound // the transport has checked whose word it is
	case answer.StatusCode() == http.StatusForbidden && (strings.Contains(text, "token not found") || strings.Contains(text, "expired")):
		return BadToken
	case answer.StatusCode() == http.StatusForbidden:
		return Denied
	case answer.StatusCode() == http.StatusInternalServerError && strings.Contains(text, "Permission denied"):
		return Denied
	case answer.StatusCode() == http.StatusInternalServerError && strings.Contains(text, "ACL token not found"):
		return BadToken
	case strings.Contains(text, "UUID must be 36 characters"):
		return BadToken // Nomad's word for a token of a wrong form
	case answer.StatusCode() == http.StatusBadGateway, answer.StatusCode() == http.StatusServiceUnavailable,
		answer.StatusCode() == http.StatusGatewayTimeout, answer.StatusCode() == http.StatusTooManyRequests:
		return Unreachable
	case answer.StatusCode() == http.StatusInternalServerError || answer.StatusCode() == http.StatusBadRequest:
		return Invalid
	}
	return Other
}

func unreachable(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded)
}

// untrusted says whether a connection was refused for its certificate. TLS versions that
// do not meet, and http spoken to https, are of the same kind: nobody got as far as Nomad.
func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &alert) || errors.As(err, &header) ||
		err != nil && strings.Contains(err.Error(), "remote error: tls:")
}
