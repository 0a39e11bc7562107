"""A provider's error body is an ending wherever it stands, unless it is quoted."""

import pytest

from segue import classify
from segue.agents.ending import Channel


def reason(text: str, channel: Channel) -> str:
    return classify(text, channel=channel).reason.value


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        (
            "context_exhausted",
            "tui",
            "got an error back from the model: "
            '("type":"invalid_request_error","code":"context_length_exceeded","message":"This '
            "model's maximum context length is 8192 tokens.\")",
        ),
        (
            "rate_limit",
            "tui",
            "エラーが発生しました：{'error': {'type': 'rate_limit_error', 'message': "
            "'Number of requests has exceeded your per-minute rate limit'}}",
        ),
        (
            "auth",
            "tui",
            "Произошла ошибка: {'error': {'code': 'invalid_api_key', "
            "'message': 'Incorrect API key provided: sk-xx'}}",
        ),
        (
            "billing",
            "tui",
            "请求失败：{'error': {'code': 'insufficient_quota', 'message': 'You "
            "exceeded your current quota, please check your plan and billing "
            "details.'}}",
        ),
        (
            "overloaded",
            "tui",
            "오류 발생: {'type': 'error', 'error': {'type': 'overloaded_error', "
            "'message': 'Overloaded'}}",
        ),
        (
            "auth",
            "tui",
            "got status: 403 Forbidden. "
            '{"error":{"code":403,"message":"Permission denied: the caller '
            'must assert a valid principal","status":"PERMISSION_DENIED"}}',
        ),
        (
            "auth",
            "stderr",
            "Error: no provider could answer. Tried:\nopenai attempt 1/2: "
            'OpenAI API error (401 Unauthorized): {\n  "error": {\n    '
            '"message": "Incorrect API key provided: sk-aaa",\n    "code": '
            '"invalid_api_key"',
        ),
        (
            "rate_limit",
            "stderr",
            "Error: All models failed. Attempts:\nanthropic attempt 1/3: API "
            'error (429 Too Many Requests): {\n  "type": "error",\n  '
            '"error": {\n    "type": "rate_limit_error",\n    "message": '
            '"This request would exceed your organization\'s rate limit"',
        ),
        (
            "overloaded",
            "stdout",
            '     1\t{\n     2\t  "error": {\n     3\t    "code": 503,\n     '
            '4\t    "message": "The model is overloaded. Please try again '
            'later.",\n     5\t    "status": "UNAVAILABLE"\n     6\t  }\n    '
            " 7\t}",
        ),
        (
            "auth",
            "log",
            '   1  {\n   2    "error": {\n   3      "type": '
            '"authentication_error",\n   4      "message": "invalid '
            'x-api-key"\n   5    }\n   6  }',
        ),
        (
            "max_budget",
            "http-body",
            '{"error":{"message":"Key budget used: $20.40 of $20.00 this '
            "month. It starts again on the "
            '1st.","type":"budget_exceeded","code":"400"}}',
        ),
        (
            "max_budget",
            "http-body",
            '{"error":{"code":"budget_exceeded","message":"The daily budget '
            "for team blue is spent; ask its owner to raise "
            'it.","type":"rate_limit_error"}}',
        ),
        (
            "max_budget",
            "stdout",
            '-> result.error = {"code":"BUDGET_EXCEEDED","message":"Budget '
            'exceeded (usd): spent 2.01 >= total 2"}',
        ),
        (
            "max_budget",
            "log",
            '{"ts":"2026-05-01T10:00:00Z","type":"stage_started"}\n'
            '{"ts":"2026-05-01T10:02:00Z","type":"budget_exceeded","message":"max_cost_usd '
            'exceeded","total_cost_usd":5.02}',
        ),
        (
            "max_turns",
            "stderr",
            "dev.langchain4j.exception.LangChain4jException: exceeded 25 "
            "sequential tool executions",
        ),
        (
            "max_turns",
            "stderr",
            "RuntimeException: Something is wrong, exceeded 100 sequential tool calls",
        ),
        ("max_turns", "tui", "Model call limits exceeded: thread limit (20/20)"),
        (
            "max_turns",
            "stderr",
            "ModelCallLimitExceededError: Model call limits exceeded: run "
            "limit (3/3), thread limit (10/10)",
        ),
        ("rate_limit", "tui", "Tu límite de uso se restablecerá el 3 jun 2026, 9:15 a.m."),
        ("rate_limit", "tui", "Ihr Nutzungslimit wird am 26. Mai 2026 um 14:40 Uhr zurückgesetzt."),
        (
            "rate_limit",
            "tui",
            "Votre limite d'utilisation sera réinitialisée le 26 mai 2026 à 14:40.",
        ),
        (
            "billing",
            "tui",
            "You: fix it\n\nnanobot\nThe AI provider rejected the request "
            "because the account has no credits left. Please top up and try "
            "again.\n\nYou:",
        ),
        ("overloaded", "stderr", "💥 upstream call failed: 503 Service Unavailable"),
        (
            "rate_limit",
            "stderr",
            "summariser step 4 was rejected by provider: 429 RESOURCE_EXHAUSTED",
        ),
    ],
)
def test_a_body_or_a_code_is_heard_behind_any_lead(
    wanted: str, channel: Channel, text: str
) -> None:
    assert reason(text, channel) == wanted


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        (
            "stdout",
            "### budget_exceeded\n\nReturned with status 400 when the key "
            "has spent its budget.\n\n```json\n"
            '{"error":{"code":"budget_exceeded"}}\n```',
        ),
        (
            "stdout",
            "| code | meaning |\n|---|---|\n| budget_exceeded | the key has "
            "no budget left |\n| rate_limit_error | too many requests |",
        ),
        (
            "stdout",
            'if err.code == "BUDGET_EXCEEDED":\n    raise BudgetError("Budget exceeded (tokens)")',
        ),
        (
            "stdout",
            'const BUDGET_EXCEEDED = "budget_exceeded";\nexport function '
            "isBudget(e) { return e.code === BUDGET_EXCEEDED; }",
        ),
        (
            "stdout",
            '+  {"error":{"code":"budget_exceeded","message":"The budget is '
            'used up"}}\n-  {"error":{"code":"quota","message":"x"}}',
        ),
        (
            "stdout",
            'expect(res.error).toEqual({"code":"BUDGET_EXCEEDED","message":"Budget '
            'exceeded (tokens): spent 0 >= total 0"})',
        ),
        (
            "stdout",
            "FAILED tests/test_budget.py::test_code - AssertionError: assert "
            '{"code": "BUDGET_EXCEEDED"} == None',
        ),
        (
            "log",
            '{"ts":"1","type":"budget_exceeded","message":"max_total_tokens '
            'exceeded"}\n{"ts":"2","type":"budget_raised","total":200000}\n'
            '{"ts":"3","type":"stage_completed","node_id":"End"}\n'
            '{"ts":"4","type":"pipeline_completed"}',
        ),
        (
            "log",
            '{"ts":"1","type":"budget_checked","message":"max_total_tokens '
            'not exceeded","total_tokens":120}',
        ),
        ("stdout", '{"type":"config","budget_exceeded":false,"max_total_tokens":120000}'),
        (
            "stdout",
            '     1\timport json\n     2\tERRORS = {\n     3\t    "error": '
            '{"code": 429, "message": "No capacity available for model on '
            'the server"},\n     4\t}\n     5\tdef f(): pass',
        ),
        (
            "stdout",
            "   10\t    def test_overloaded(self):\n   11\t        body = "
            '{"error": {"code": 503, "message": "The model is overloaded"}}\n'
            '   12\t        self.assertEqual(parse(body), "overloaded")',
        ),
        (
            "stdout",
            "● Read(fixtures/error.json)\n  ⎿       1\t{\n          2\t  "
            '"error": {\n          3\t    "code": 503,\n          4\t    '
            '"message": "The model is overloaded."\n          5\t  }\n       '
            "   6\t}\n\n● The fixture has the shape we need, so I will write "
            "the parser now.",
        ),
        (
            "stdout",
            "The docs show that an error looks like "
            '{"error":{"code":429,"message":"Resource '
            'exhausted","status":"RESOURCE_EXHAUSTED"}} and clients should '
            "back off.",
        ),
        (
            "stdout",
            "Example response:\n\n"
            '{"error":{"code":"insufficient_quota","message":"You exceeded '
            'your current quota"}}\n\nHandle it by asking the user to pay.',
        ),
        (
            "stdout",
            '// 401\nconst body = {"error":{"message":"Expected OAuth2 '
            'access token","status":"UNAUTHENTICATED"}};',
        ),
        ("stdout", "got status: 401, want 200\n--- FAIL: TestAuth (0.01s)\nFAIL"),
        ("stdout", "expected: 200\ngot status: 401 Unauthorized\n\n1 failed, 3 passed"),
        (
            "stdout",
            'AssertionError: got status: 401 Unauthorized. {"error":{"status":"UNAUTHENTICATED"}}',
        ),
        ("stdout", '如果发生错误：{"error": {"type": "RESOURCE_EXHAUSTED"}}，请稍后重试。'),
        (
            "stdout",
            "Wenn der Server mit 401 antwortet: "
            '{"error":{"code":"invalid_api_key"}}, ist der Schlüssel falsch.',
        ),
        (
            "stdout",
            '- 401: {"error":{"code":"invalid_api_key"}}\n- 429: '
            '{"error":{"code":"rate_limit_exceeded"}}\n- 503: '
            '{"error":{"code":"overloaded"}}',
        ),
        (
            "stdout",
            "The middleware stops the run when the model call limit is "
            "exceeded: run limit and thread limit can be set apart.",
        ),
        (
            "stdout",
            'raise RuntimeException("Something is wrong, exceeded " + MAX + '
            '" sequential tool executions")',
        ),
        ("stdout", 'it("stops when it exceeded 10 sequential tool executions", () => {'),
        ("stdout", "El límite de uso se restablece cada lunes a las 9:00, según la documentación."),
        (
            "stdout",
            "The provider rejected the request because of a bad schema in an "
            "earlier version; that was fixed in 1.2.",
        ),
        (
            "stdout",
            "If the AI provider rejected the request because the key is out "
            "of quota, tell the user to top up.",
        ),
        (
            "stdout",
            "nginx: upstream call failed: 503 Service Unavailable is logged when a pod restarts.",
        ),
        (
            "stdout",
            'Common failure: {"error":{"code":"invalid_api_key"}} means that the key is wrong.',
        ),
        ("stdout", '-> config.error = {"code":"retry","max":3}'),
        ("stdout", 'Sample output:\n\nError: 429 {"error":{"type":"rate_limit_error"}}'),
        # A guide to errors, and the checks of a doctor.
        (
            "transcript-record",
            "402\n\nPayment Required\n\n  • Cause: no credits\n    Solution: buy some\n\n429\n\n"
            "Rate Limit Exceeded\n\n  • Cause: too fast\n    Solution: slow down\n",
        ),
        (
            "stdout",
            "Checks\n   ✓ system       en-US\n   ✗ auth         no API key was found; run frob\n"
            "   ⚠ network      slow\n",
        ),
    ],
)
def test_a_body_or_a_code_that_is_only_shown_is_no_stop(channel: Channel, text: str) -> None:
    assert reason(text, channel) == "unknown"
