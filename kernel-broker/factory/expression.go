package factory

import "strings"

// holds evaluates a Kconfig expression: symbols, !, &&, ||, =, != and
// parentheses. What it cannot read counts as true, since an error message must
// not accuse a condition that it did not understand.
func holds(expression string, config Config) bool {
	parser := expressionParser{tokens: expressionTokens(expression), config: config}
	value := parser.or()
	return value || parser.confused || len(parser.tokens) > 0
}

type expressionParser struct {
	tokens   []string
	config   Config
	confused bool
}

func (p *expressionParser) or() bool {
	value := p.and()
	for p.accept("||") {
		right := p.and()
		value = value || right
	}
	return value
}

func (p *expressionParser) and() bool {
	value := p.term()
	for p.accept("&&") {
		right := p.term()
		value = value && right
	}
	return value
}

func (p *expressionParser) term() bool {
	switch {
	case p.accept("!"):
		return !p.term()
	case p.accept("("):
		value := p.or()
		if !p.accept(")") {
			p.confused = true
		}
		return value
	}
	left := p.next()
	switch {
	case p.accept("="):
		return p.value(left) == p.value(p.next())
	case p.accept("!="):
		return p.value(left) != p.value(p.next())
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

func (p *expressionParser) accept(token string) bool {
	if len(p.tokens) == 0 || p.tokens[0] != token {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *expressionParser) next() string {
	if len(p.tokens) == 0 || strings.ContainsAny(p.tokens[0][:1], "&|=!()<>$") {
		p.confused = true
		return ""
	}
	token := p.tokens[0]
	p.tokens = p.tokens[1:]
	return token
}

func expressionTokens(expression string) []string {
	var tokens []string
	for rest := strings.TrimSpace(expression); rest != ""; rest = strings.TrimSpace(rest) {
		length := tokenLength(rest)
		tokens = append(tokens, rest[:length])
		rest = rest[length:]
	}
	return tokens
}

func tokenLength(rest string) int {
	for _, operator := range []string{"&&", "||", "!="} {
		if strings.HasPrefix(rest, operator) {
			return len(operator)
		}
	}
	if strings.ContainsAny(rest[:1], "!()=<>$&|") {
		return 1
	}
	if rest[0] == '"' {
		if end := strings.IndexByte(rest[1:], '"'); end >= 0 {
			return end + 2
		}
		return len(rest)
	}
	if end := strings.IndexAny(rest, " \t!()=<>$&|\""); end > 0 {
		return end
	}
	return len(rest)
}
