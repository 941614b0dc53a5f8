// SPDX-License-Identifier: Apache-2.0

package build

import (
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// holds evaluates a Kconfig expression: symbols, !, &&, ||, =, != and
// parentheses. What it cannot read counts as true, since an error message must
// not accuse a condition that it did not understand.
func holds(expression string, config Config) bool {
	parser := expressionParser{Tokens: kconfig.Split(expression, `"`), config: config}
	value := parser.or()
	return value || parser.Confused || !parser.Empty()
}

type expressionParser struct {
	kconfig.Tokens
	config Config
}

func (p *expressionParser) or() bool {
	value := p.and()
	for p.Accept("||") {
		right := p.and()
		value = value || right
	}
	return value
}

func (p *expressionParser) and() bool {
	value := p.term()
	for p.Accept("&&") {
		right := p.term()
		value = value && right
	}
	return value
}

func (p *expressionParser) term() bool {
	switch {
	case p.Accept("!"):
		return !p.term()
	case p.Accept("("):
		value := p.or()
		if !p.Accept(")") {
			p.Confused = true
		}
		return value
	}
	left := p.Next()
	switch {
	case p.Accept("="):
		return p.value(left) == p.value(p.Next())
	case p.Accept("!="):
		return p.value(left) != p.value(p.Next())
	}
	value := p.value(left)
	return value == "y" || value == "m"
}

// value of a token: a symbol's, or the constant itself.
func (p *expressionParser) value(token string) string {
	if token == "y" || token == "m" || token == "n" || strings.HasPrefix(token, `"`) {
		return token
	}
	if value, set := p.config[token]; set {
		return value
	}
	if token != "" && token[0] >= '0' && token[0] <= '9' {
		return token
	}
	return notSet
}
