"""A page that was opened from disk in a browser."""


class Opened:
    """A page from disk and everything it said, asked for or was denied."""

    def __init__(self, context, file, unfolded):
        self.messages, self.requests, self.dialogs = [], [], []
        context.add_init_script(
            "window.denied = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.denied.push(event.violatedDirective + ' ' + event.blockedURI));"
        )
        self.page = context.new_page()
        self.page.on("console", lambda message: self.messages.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self.messages.append(("error", str(error))))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(file.as_uri())
        if unfolded:
            self.page.evaluate(
                "for (const part of document.querySelectorAll('details.part')) part.open = true;"
            )

    def _dismiss(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def text(self, selector):
        return " ".join(self.page.locator(selector).text_content().split())
